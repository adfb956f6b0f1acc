"""shapes: one-shape kernels and skipped tails."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge import draws
from refold.judge.session import Session
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """Each shape that the reference accepts."""
    before = session.cases
    for case, inputs in draws.shapes(session.inputs(), session.quick):
        yield from session.check(case, inputs)
    if session.cases == before:
        raise Skip("the reference accepts no other shape")


TEST = Test(
    "shapes",
    "one-shape kernels, skipped tails",
    "Batches of 0, 1, odd and one more, and every dimension that the reference accepts.",
    run,
)
