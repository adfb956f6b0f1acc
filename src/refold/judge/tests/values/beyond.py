"""What comes out where outputs leave their type's range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import beside
from refold.judge.truth.truth import Truth
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure

BEYOND = "outputs out of their type's range: other NaN and infinity beside them"


def within(session: Session, given: list[Any], found: Iterable[Failure]) -> Iterator[Failure]:
    """What failed on inputs; NaN and infinity beside outputs that leave their type are told."""
    failures = list(found)
    if failures and _overflows(session.truth(given)) and not any(map(_of_numbers, failures)):
        session.assumptions.add(BEYOND)
    else:
        yield from failures


def _overflows(truth: Truth) -> bool:
    """Whether outputs leave the range of their type, and float64's do not. What eager makes behind
    them is of its accumulators then: a running product of float32 in float64 is zero again where
    one in float32 multiplies an infinity by zero."""
    assert truth.eager is not None and truth.exact is not None
    pairs = zip(tensors(truth.eager.outputs), tensors(truth.exact.outputs), strict=True)
    wide = ((mine, beside.whole(exact)) for mine, exact in pairs if inexact(mine))
    return any(bool((mine.isinf() & exact.isfinite()).any()) for mine, exact in wide)


def _of_numbers(failure: Failure) -> bool:
    """Whether it is of other values than NaN and infinity."""
    worst = failure.worst
    return worst is None or (math.isfinite(worst.got) and math.isfinite(worst.eager))
