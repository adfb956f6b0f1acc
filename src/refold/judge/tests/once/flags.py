"""flags: global switches that stay changed after import or a call."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Test
from refold.judge.truth.copies import duplicate
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised
from refold.judge.worker.calls import warned


def run(session: Session) -> Iterator[Failure]:
    """Snapshots around the import and around calls in both modes, with gradients and without."""
    session.cases += 1
    for text in session.info.get("flags", []):
        yield session.fail(Status.MUTATES, "import", f"left changed: {text}")
    inputs, own = session.inputs(), session.oracle.training
    _warnings(session)
    yield from _backward(session)
    for mode in (own, not own):
        if session.truth(inputs, training=mode).eager is None:
            continue
        for wanted in (False, True):
            reply = session.call(inputs, training=mode, grad_mode=wanted)
            session.cases += 1
            for text in reply["flags"]:
                yield session.fail(Status.MUTATES, "call", f"left changed: {text}")


def _backward(session: Session) -> Iterator[Failure]:
    """A call and its backward."""
    truth = session.truth(session.inputs(), grad=True)
    if truth.plain is None or not truth.plain.grads:
        return
    try:
        reply = session.call(session.inputs(), grad=truth.cotangents)
    except Raised:  # which the test of gradients finds
        return
    session.cases += 1
    for text in reply["flags"]:
        yield session.fail(Status.MUTATES, "a backward", f"left changed: {text}")


def _warnings(session: Session) -> None:
    """What the reference itself warns of, the candidate may leave out: that is told."""
    given = session.inputs()
    if session.truth(given).eager is None:
        return
    session.oracle_enter(session.base_state)
    with session.oracle.kept():
        theirs = warned(session.oracle.model, duplicate(given, session.device))
    if theirs:
        host = session.enter()
        host.request("put", slot="w", inputs=given)
        mine = host.request("warnings", slot="w")
        if not all(one in mine for one in theirs):
            session.assumptions.add("the reference warns of something, and it does not")


TEST = Test(
    "flags",
    "TF32, threads, determinism, default dtype, warnings, environment left changed",
    "Import, calls and a backward leave every global switch as they found it, but for what the "
    "reference's file sets, too, as it is imported.",
    run,
)
