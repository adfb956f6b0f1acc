"""isolation: frame walks, patched functions, other modules' globals; and stolen bait."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.session import Session
from refold.judge.tests.base import Test
from refold.judge.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """What the worker's guard saw. It runs last; the process boundary is what protects."""
    session.cases += 1
    session.call(session.inputs())
    for text in session.outside.complaints():
        yield session.fail(Status.CHEATS, "outside its process", text)
    for text in session.worker().request("complaints"):
        yield session.fail(Status.CHEATS, "worker", str(text))


TEST = Test(
    "isolation",
    "frame walks, patched allclose or timers, shared globals, a slowed reference",
    "The candidate touches nothing of the interpreter that is not its own.",
    run,
    frugal=True,
)
