"""shapes: one-shape kernels, skipped tails, arguments taken for constants."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.truth.power import has_power
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED
from refold.judge.verdict.verdict import Failure

_MOST, _FEW = 200, 9  # ends of the secret sizes
_ELEMENTS = 1 << 23  # of a call with --quick


def run(session: Session) -> Iterator[Failure]:
    """Each shape, and each value of a plain number, that the reference accepts."""
    given = session.inputs()
    sizes = range(5, _most(session, given) if session.quick else _MOST)
    secret = random.Random(session.secret)
    drawn = secret.sample(sizes, 2 if session.quick else 4)
    shaped = draws.shapes(given, session.quick, [*drawn, draws.larger_batch(given)], secret)
    held = list(session.state(PERTURBED).values())
    yield from session.check("the usual sizes", given)  # what they leave behind meets the others
    before = session.cases
    for case, inputs in shaped:
        yield from session.check(case, inputs, limit=seldom(given, inputs, held))
    odd = draws.odd(given, lambda more: session.truth(more).eager is not None)
    if odd is not None:
        yield from session.check("every axis odd", odd, limit=seldom(given, odd, held))
    for case, inputs in draws.lasting(given):
        if has_power(session.truth(inputs)):
            yield from session.check(case, inputs, limit=seldom(given, inputs, held))
    for case, inputs in draws.scalars(given):
        yield from session.check(case, inputs, limit=not case.endswith(draws.CHANGED))
    if session.cases == before:
        raise Skip("the reference accepts no other shape")


def seldom(given: list[Any], other: list[Any], held: Iterable[torch.Tensor] = ()) -> bool:
    """Whether nobody needs these shapes: no samples, or one of several inputs of the same size
    alone with one row or column, which is for all then; or with one where the state (``held``) has
    as many as usual. A kernel may refuse them, which is told."""
    pairs = list(zip(tensors(given), tensors(other), strict=True))
    if any(old.numel() and not new.numel() for old, new in pairs):
        return True
    still = [old for old, new in pairs if old.shape == new.shape]
    for old, new in pairs:
        for axis, (was, now) in enumerate(zip(old.shape, new.shape, strict=True)):
            if now == 1 < was and any(t.dim() == old.dim() and t.shape[axis] == was for t in still):
                return True
            behind = axis - old.dim()  # the axis from the end, as it meets others
            if (
                axis
                and now == 1 < was
                and any(t.dim() >= -behind and t.shape[behind] == was for t in held)
            ):
                return True
    return False


def _most(session: Session, given: list[Any]) -> int:
    """The end of the secret sizes: a hundred large samples are gigabytes, and take seconds."""
    truth = session.truth(given)
    outputs = [] if truth.eager is None else tensors(truth.eager.outputs)
    held = [t.numel() / t.shape[0] for t in (*tensors(given), *outputs) if t.dim() and t.shape[0]]
    return max(_FEW, min(_MOST, int(_ELEMENTS / max(held, default=1.0))))


TEST = Test(
    "shapes",
    "one-shape kernels, skipped tails, numbers taken for constants, inputs changed at some sizes",
    "Batches of 0, 1, odd, one more, eight times as many and secret sizes, every dimension (one "
    "more, small, 64, 257, secret, as large as another, exchanged with the batch, long with the "
    "same large numbers at every place), all of them odd, and other numbers (zero, one, negative) "
    "that the reference accepts.",
    run,
)
