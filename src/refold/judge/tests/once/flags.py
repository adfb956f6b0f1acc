"""flags: global switches that stay changed after import or a call."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Snapshots around the import and around calls in both modes, with gradients and without."""
    session.cases += 1
    for text in session.info.get("flags", []):
        yield session.fail(Status.MUTATES, "import", f"left changed: {text}")
    inputs, own = session.inputs(), session.oracle.training
    for mode in (own, not own):
        if session.truth(inputs, training=mode).eager is None:
            continue
        for wanted in (False, True):
            reply = session.call(inputs, training=mode, grad_mode=wanted)
            session.cases += 1
            for text in reply["flags"]:
                yield session.fail(Status.MUTATES, "call", f"left changed: {text}")


TEST = Test(
    "flags",
    "TF32, threads, determinism, default dtype left changed",
    "Import and calls leave every global switch as they found it.",
    run,
)
