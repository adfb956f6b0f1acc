"""The workers of one timing: eager, a second eager, a null model, the candidate."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.judge.clock import arena, outputs, sealed
from refold.judge.draws.trees import each
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL
from refold.judge.wire.host import Host

_CACHE = 64 << 20  # bytes flushed between cold calls; more than a last-level cache
_ARENA_BYTES = 256 << 20
_TWICE_BYTES = 1 << 30  # of a state, of which no second eager is held


@dataclass
class Table:
    """The workers of one timing, and the sizes of what passes through shared memory."""

    eager: Host
    null: Host
    control: Host | None
    candidate: Host
    size: int
    slots: int
    offset: int
    seed: int | None


def workers(session: Session, stack: contextlib.ExitStack, sets: list[list[Any]]) -> Table:
    """Start the workers. They end with ``stack``, all at once."""
    truth = session.truth(session.file_inputs())
    given = None if truth.eager is None else truth.eager.outputs
    size = arena.size_of(given)
    slots = max(1, min(256, _ARENA_BYTES // max(1, size)))
    twice = session.oracle.bytes < _TWICE_BYTES and not session.frugal
    hosts = [stack.enter_context(_worker(session)) for _ in range(3 if twice else 2)]
    for host in hosts:
        stack.callback(host.kill)  # before the first is waited for
    null, eager = hosts[:2]
    control = hosts[2] if twice else None
    for host in hosts[1:]:  # all at once: a large model takes seconds, and so does a device
        host.post("load", session.limits.import_seconds, **_loaded(session))
    null.post(
        "null", 120, outputs=each(given, _form), device=str(session.device), threads=session.threads
    )
    candidate = fresh(session)
    null.wait(120)
    for host in hosts[1:]:
        _loaded_reference(session, host)
    seed = session.seed + 7 if outputs.stochastic(session) else None
    found = Table(eager, null, control, candidate, size, slots, slots * size, seed)
    _ready((*hosts, candidate), found, sets)
    return found


def _form(leaf: Any) -> Any:
    """A tensor of the same shape, sent as one element: the null model's values say nothing."""
    if not isinstance(leaf, torch.Tensor) or not leaf.numel():
        return leaf
    return leaf.detach().reshape(-1)[:1].reshape(()).expand(leaf.shape)


def ready(host: Host, table: Table, sets: list[list[Any]]) -> None:
    """Give a worker its input sets and the memory that it shares."""
    _ready([host], table, sets)


def _ready(hosts: Sequence[Host], table: Table, sets: list[list[Any]]) -> None:
    for host in hosts:
        host.seal_arena(table.offset + max(sealed.inputs_size(one) for one in sets))
        # the others are called on sealed inputs only
        given = [] if host is table.null or host is table.control else sets
        host.post("lap_inputs", 120, sets=given, slot=table.size, flush_bytes=2 * _CACHE)
    for host in hosts:  # each moves them to its device meanwhile
        host.wait(120)


def _worker(session: Session) -> Host:
    """One like the candidate's, for the judge's own code."""
    return Host(session.limits, session.threads)


def _loaded(session: Session) -> dict[str, Any]:
    """The request for a worker that is to hold the reference."""
    return {
        "path": str(session.reference.path.resolve()),
        "class_name": session.reference.class_name,
        "sets": dict(session.reference.sets),
        "init": session.oracle.init,
        "seed": session.seed,
        "device": str(session.device),
        "threads": session.threads,
        "watch": False,
    }


def _loaded_reference(session: Session, host: Host) -> None:
    """Wait for the reference in a worker, and give it the state of the judgement."""
    host.wait(session.limits.import_seconds)
    if session.base_state != INITIAL:
        state = session.state(session.base_state)
        host.request("load_state", 120, state=state, how="strict")


def fresh(session: Session) -> Host:
    """The candidate in a new worker: a process that served the tests has another heap."""
    session.dismiss()
    return session.enter()
