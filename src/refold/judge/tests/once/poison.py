"""poison: reads of memory that nothing wrote."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """Uninitialised tensors filled with NaN, then freed memory full of two other values."""
    inputs = session.inputs()
    if session.truth(inputs).eager is None:
        raise Skip("the reference does not take its inputs")
    yield from session.check("fresh tensors are NaN", inputs, nan_fill=True)
    for value in (float("nan"), 1e30, -7.0):
        yield from session.check(f"freed memory holds {value}", inputs, poison=value)


TEST = Test(
    "poison",
    "reads of uninitialised memory",
    "With uninitialised memory full of NaN, and of other values, the answer is the same.",
    run,
)
