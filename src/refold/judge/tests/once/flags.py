"""flags: global switches that stay changed after import or a call."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Snapshots around the import and around two calls."""
    session.cases += 1
    for text in session.info.get("flags", []):
        yield session.fail(Status.MUTATES, "import", f"left changed: {text}")
    for draw in (0, 1):
        reply = session.call(session.inputs(draw))
        session.cases += 1
        for text in reply["flags"]:
            yield session.fail(Status.MUTATES, "call", f"left changed: {text}")


TEST = Test(
    "flags",
    "TF32, threads, determinism, default dtype left changed",
    "Import and calls leave every global switch as they found it.",
    run,
)
