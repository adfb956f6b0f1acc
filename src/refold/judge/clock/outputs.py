"""Outputs of timed calls: the one finding of the clock that can condemn, because it is a fact."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from refold.judge.clock import arena
from refold.judge.clock.stopwatch import lap
from refold.judge.draws.trees import differ
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Host

_IDLE = 0.25  # of the time, run or waited for a processor
_CALLS = 8  # of a lap whose outputs are taken, one right after the other


def verified(session: Session, case: str, inputs: list[Any], raw: bytearray) -> Iterator[Failure]:
    """The bytes of one timed call's outputs, by the error rule."""
    truth = session.truth(inputs)
    if truth.eager is None or arena.size_of(truth.eager.outputs) > len(raw):
        return  # of a selection by value, larger than that of the file's inputs
    got = arena.outputs(raw, truth.eager.outputs)
    yield from session.compared(case, got, truth, Status.CHEATS)


def in_a_row(
    session: Session,
    host: Host,
    sets: list[list[Any]],
    size: int,
    slots: int,
    seed: int | None,
    draw: random.Random,
) -> Iterator[Failure]:
    """A lap of calls on new inputs, one right after the other, as warm laps are; two outputs."""
    calls = min(_CALLS, slots, len(sets))
    host.request("lap_inputs", 120, sets=sets[:calls], slot=size, flush_bytes=0, seed=seed)
    arena.spoil(host, size, calls)
    lap(host, list(range(calls)), store=True)
    for i in {calls - 1, draw.randrange(calls)}:
        raw = arena.read(host, i, size)  # at once: whatever is still to be written comes too late
        yield from verified(session, f"timed call {i + 1} of a row", sets[i], raw)


def incomparable(session: Session) -> str:
    """Why outputs of timed calls say nothing; empty where they do."""
    if session.remembers(session.oracle.training):
        return "depend on the calls before"
    run = session.truth(session.file_inputs()).eager
    if run is not None and any(run.others):
        return "depend on random numbers that are not PyTorch's"
    return ""


def stochastic(session: Session) -> bool:
    """Whether the reference's outputs are random."""
    inputs, mode = session.file_inputs(), session.oracle.training
    truth = session.truth(inputs)
    if truth.eager is not None:
        return truth.eager.drew
    runs = [session.oracle.eager(inputs, mode, session.seed + i).outputs for i in (0, 1)]
    return differ(*runs)


def idle(candidate: Host) -> float:
    """The share of the time in which the candidate works, or would, while nobody calls it, if it is
    much: that makes everything else slow. It stands still while eager is timed; this says that it
    had to."""
    share = 0.0
    for _ in range(3):
        time.sleep(0.1)
        before, began = candidate.busy_seconds(), time.perf_counter()
        time.sleep(0.2)
        share = (candidate.busy_seconds() - before) / (time.perf_counter() - began)
        if share < _IDLE:
            return 0.0
    return share
