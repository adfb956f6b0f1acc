"""isolation: frame walks, patched functions, other modules' globals; and stolen bait."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Test
from refold.judge.verdict import blame
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """What this worker's guard saw, and those before it. The process boundary is what protects."""
    session.cases += 1
    session.call(session.inputs())
    yield from blame.outside(session)
    session.ask_guard()
    yield from session.found


TEST = Test(
    "isolation",
    "frame walks, patched allclose or timers, shared globals, a slowed reference",
    "The candidate touches nothing of the interpreter that is not its own.",
    run,
    frugal=True,
)
