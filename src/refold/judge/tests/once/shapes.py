"""shapes: one-shape kernels, skipped tails, arguments taken for constants."""

from __future__ import annotations

import random
from collections.abc import Iterator

from refold.judge import draws
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """Each shape, and each value of a plain number, that the reference accepts."""
    before, given = session.cases, session.inputs()
    drawn = random.Random(session.secret).sample(range(5, 200), 2 if session.quick else 4)
    shaped = draws.shapes(given, session.quick, [*drawn, draws.larger_batch(given)])
    for case, inputs in (*shaped, *draws.scalars(given)):
        yield from session.check(case, inputs, limit=case.endswith("no whole one"))
    if session.cases == before:
        raise Skip("the reference accepts no other shape")


TEST = Test(
    "shapes",
    "one-shape kernels, skipped tails, numbers taken for constants",
    "Batches of 0, 1, odd, one more, eight times as many and secret sizes, every dimension and "
    "other numbers that the reference accepts.",
    run,
)
