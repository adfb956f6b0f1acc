"""Does the clock tell the truth: outputs of timed calls, and timed calls on inputs never seen.

The number that is reported comes from laps over rotating inputs whose outputs are dropped. Here the
same calls run on inputs drawn for this purpose, once each, with their outputs taken: work that was
kept back, remembered or skipped costs its full time then. Eager does the same beside it, so that
what fresh inputs and taken outputs cost by themselves is measured, not guessed. Everything is
measured again, on fresh inputs, before a candidate is condemned, and the least times count: a busy
machine makes laps longer, never shorter, so that one undisturbed lap of each kind acquits. Work
that was skipped in the laps that are reported costs its time in every one of these.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from refold.contract import seed_everything
from refold.judge.host import Host
from refold.judge.oracle import digest, tensors
from refold.judge.session import Session
from refold.judge.verdict import Failure, Status, Timing

TOLERANCE = 1.2  # clocks and laps must agree within 20 %
_ROUNDS = 40
_SECONDS = 10.0  # after which no further round begins
_GROSS, _GROSS_ROUNDS = 1.5, 12  # so far off for so long, it will not come right
_FRESH_BYTES = 64 << 20
_FRESH_CALLS = 48
_LAP_SECONDS = 0.5
_IDLE = 0.25  # of one processor; under load a spinner gets a share only
_GRAIN = 5e-6  # seconds a call: what the loop around a call costs differs by as much

Lap = Callable[..., tuple[float, list[float]]]


@dataclass
class _Side:
    """One worker's laps on fresh inputs: the least seconds of ``calls`` calls, for two counts."""

    host: Host
    fewer: float = math.inf
    more: float = math.inf


def check(
    session: Session,
    eager: Host,
    candidate: Host,
    timing: Timing,
    lap: Lap,
    overhead: float,
    size: int,
    slots: int,
    samples: int,
) -> list[Failure]:
    """Failures of the test ``timed outputs``; ``size`` bytes of one output, ``slots`` of them fit.

    ``lap(host, order, store=...)`` answers with the parent's seconds and the worker's claims.
    """
    session.test = "timed outputs"
    found = _idle(session, candidate)
    if found or not size:
        return found
    found, counts = _fresh_laps(session, eager, candidate, timing, lap, size, slots, samples)
    return found or _worker_clock(session, candidate, timing, lap, overhead, counts)


def _idle(session: Session, candidate: Host) -> list[Failure]:
    """Whether the candidate works while nobody calls it: that makes eager look slow.

    It stands still while eager is timed; this says that it had to.
    """
    share = 0.0
    for _ in range(3):
        time.sleep(0.1)
        before, began = candidate.cpu_seconds(), time.perf_counter()
        time.sleep(0.2)
        share = (candidate.cpu_seconds() - before) / (time.perf_counter() - began)
        if share < _IDLE:
            return []
    detail = f"it uses {share:.0%} of a processor while nobody calls it"
    return [session.fail(Status.CHEATS, "idle", detail)]


def _fresh_laps(
    session: Session,
    eager: Host,
    candidate: Host,
    timing: Timing,
    lap: Lap,
    size: int,
    slots: int,
    samples: int,
) -> tuple[list[Failure], int]:
    inputs = session.file_inputs()
    compared = not stochastic(session, inputs)
    if not compared:
        session.notes.append("outputs are random: those of timed calls are not compared")
    counts = _counts(session, timing, inputs, slots)
    draw = random.Random(session.secret)
    sides = (_Side(eager), _Side(candidate))
    began, detail = time.perf_counter(), ""
    for i in range(3 if session.frugal else _ROUNDS):
        if i > 3 and time.perf_counter() - began > _SECONDS:
            break
        sets = [
            session.reference.inputs(session.secret + 1000 * (i + 1) + j)
            for j in range(1 + sum(counts))
        ]
        for side in sides if i % 2 else sides[::-1]:
            side.host.request("lap_inputs", 120, sets=sets, store=True, flush_bytes=0)
            first = 1
            for calls in counts:
                order = list(range(first, first + calls))
                first += calls
                lap(side.host, [0], store=True)  # it may have stood still, and its caches too
                os.pwrite(side.host.arena, b"\xff" * min(size * calls, 1 << 20), 0)
                seconds = lap(side.host, order, store=True)[0]
                if calls == counts[0]:
                    side.fewer = min(side.fewer, seconds)
                else:
                    side.more = min(side.more, seconds)
                with side.host.stopped():
                    picks = draw.sample(range(calls), min(calls, samples))
                    data = [(p, os.pread(side.host.arena, size, p * size)) for p in picks]
                if side.host is candidate and compared:
                    found = _verify(session, sets, order, data)
                    if found:
                        return found, counts[1]
        detail, factor = _disagreement(timing, sides, counts)
        if not detail:
            return [], counts[1]
        if factor > _GROSS and i >= _GROSS_ROUNDS:
            break
    return [session.fail(Status.CHEATS, "parent's clock", detail)], counts[1]


def _counts(session: Session, timing: Timing, inputs: list[Any], slots: int) -> tuple[int, int]:
    """Calls of the shorter and of the longer lap."""
    if session.frugal:
        return 1, 2
    each = max(timing.candidate.median, timing.eager.median, 1e-6)
    held = sum(t.numel() * t.element_size() for t in tensors(inputs))
    most = min(_FRESH_CALLS, slots, _FRESH_BYTES // max(held, 1), int(_LAP_SECONDS / each))
    more = max(2, most * 3 // 4)
    return max(1, more // 4), more


def _disagreement(
    timing: Timing, sides: tuple[_Side, _Side], counts: tuple[int, int]
) -> tuple[str, float]:
    """What fresh calls cost beyond dropped ones, less what the same costs eager, or nothing; and
    how many times what is allowed."""
    slopes = [
        max(s.more - s.fewer, 0.0) / (counts[1] - counts[0])  # fixed costs of a lap cancel
        for s in sides
    ]
    dropped = [min(s) for s in (timing.samples_eager, timing.samples_candidate)]
    apart = max(slopes[0] - dropped[0], 0.0)
    allowed = TOLERANCE * (dropped[1] + apart) + _GRAIN
    if slopes[1] <= allowed:
        return "", 1.0
    detail = (
        f"calls on new inputs whose outputs are taken cost {slopes[1]:.3g} s each, calls on known "
        f"inputs whose outputs are dropped {dropped[1]:.3g} s; eager's cost {slopes[0]:.3g} s and "
        f"{dropped[0]:.3g} s"
    )
    return detail, slopes[1] / allowed


def _worker_clock(
    session: Session, candidate: Host, timing: Timing, lap: Lap, overhead: float, calls: int
) -> list[Failure]:
    """The worker's claims beside the parent's clock; of several laps the closest counts."""
    if session.frugal or not timing.clock > TOLERANCE:
        return []
    sums, laps = [], max(calls, 2)
    per = max(1, round(_LAP_SECONDS / 5 / max(timing.candidate.median * laps, 1e-6)))
    for _ in range(_ROUNDS):
        wall, claims = lap(candidate, [0, laps * per])
        each = max(wall - overhead, 1e-9) / (laps * per)
        claimed = claims[0] / (laps * per)
        sums.append(each / max(claimed, 1e-12))
        if sums[-1] <= TOLERANCE or each - claimed < _GRAIN:
            return []
        time.sleep(0.01)
    detail = f"the parent measured at least {min(sums):.2f} times what the worker claims"
    return [session.fail(Status.CHEATS, "worker's clock", detail)]


def _verify(
    session: Session, sets: list[list[Any]], order: list[int], data: list[tuple[int, bytes]]
) -> list[Failure]:
    for position, raw in data:
        truth = session.truth(sets[order[position]])
        if truth.eager is None or truth.exact is None:
            continue
        eager = tensors(truth.eager.outputs)[0]
        got = torch.frombuffer(bytearray(raw), dtype=eager.dtype).reshape(eager.shape)
        outputs = _replaced(truth.eager.outputs, got)
        case = f"timed call {position} of {len(order)}"
        found = list(session.compared(case, outputs, truth, Status.CHEATS))
        if found:
            return found
    return []


def _replaced(tree: Any, first: torch.Tensor) -> Any:
    """The tree with its first tensor replaced."""
    done = False

    def walk(value: Any) -> Any:
        nonlocal done
        if isinstance(value, torch.Tensor) and not done:
            done = True
            return first
        if isinstance(value, list | tuple):
            return type(value)(walk(v) for v in value)
        if isinstance(value, dict):
            return {k: walk(v) for k, v in value.items()}
        return value

    return walk(tree)


def stochastic(session: Session, inputs: list[Any]) -> bool:
    """Whether the reference's outputs are random."""
    mode = session.oracle.training
    truth = session.truth(inputs)
    if session.device.type == "cpu" and truth.eager is not None:
        seed_everything(session.seed + 7)
        return truth.eager.random != digest(torch.get_rng_state())
    runs = [session.oracle.eager(inputs, mode, session.seed + i).outputs for i in (0, 1)]
    a, b = ([digest(t) for t in tensors(r)] for r in runs)
    return a != b
