"""hostile values: softmax without its max, cancellation, denormals, NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure

Change = Callable[[torch.Tensor], torch.Tensor]


def run(session: Session) -> Iterator[Failure]:
    """Each value in turn; NaN and infinity are only recorded if the candidate assumes finite."""
    inputs = session.inputs()
    if not draws.has_floats(inputs):
        raise Skip("no floating inputs")
    for case, change, finite in (*CASES, *_alone(inputs)):
        changed = draws.mapped(inputs, change)
        found = list(session.check(case, changed))
        if found and not finite and session.finite_only:
            session.assumptions.add("finite: differs from eager on NaN or infinite inputs")
            continue
        yield from found


def _element(value: float) -> Change:
    def change(t: torch.Tensor) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.numel():
            t.view(-1)[t.numel() // 2] = value
        return t

    return change


def _alone(inputs: list[Any]) -> Iterator[tuple[str, Change, bool]]:
    """A NaN in one of several inputs: beside another one in its place it decides nothing."""
    floats = list(dict.fromkeys(id(t) for t in draws.tensors(inputs) if t.is_floating_point()))
    for number, one in enumerate(floats[:_MOST_ALONE] if len(floats) > 1 else ()):

        def change(t: torch.Tensor, one: int = one) -> torch.Tensor:
            return _element(float("nan"))(t) if id(t) == one else t

        yield f"one NaN, in floating input {number} alone", change, False


_MOST_ALONE = 4  # inputs


def _row(value: float) -> Change:
    def change(t: torch.Tensor) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.numel() and t.dim():
            t[t.shape[0] // 2] = value
        return t

    return change


def _rows_of_scales(t: torch.Tensor) -> torch.Tensor:
    if t.dim() < 2:
        return t
    steps = 2.0 ** (torch.arange(t.shape[0]) % 21 - 10)
    return t * steps.reshape(-1, *[1] * (t.dim() - 1)).to(t.dtype)


def _signed_zeros(t: torch.Tensor) -> torch.Tensor:
    return torch.copysign(torch.zeros_like(t), t)


def _far(t: torch.Tensor) -> torch.Tensor:
    return t + 3.0e3


CASES: tuple[tuple[str, Change, bool], ...] = (
    ("all zeros, both signs", _signed_zeros, True),
    ("denormals", lambda t: t * 1e-40, True),
    ("large values (x 200)", lambda t: t * 200, True),
    ("all shifted by 3000", _far, True),
    ("rows of scales 2^-10 to 2^10", _rows_of_scales, True),
    ("one NaN", _element(float("nan")), False),
    ("one infinity", _element(float("inf")), False),
    ("one row of -infinity", _row(float("-inf")), False),
    ("one row of NaN", _row(float("nan")), False),
)


def describe() -> list[Any]:
    """Names of the cases."""
    return [*(name for name, _, _ in CASES), "one NaN, in each floating input alone"]


TEST = Test(
    "hostile values",
    "softmax without its max, cancellation, lost NaN or infinity",
    "Zeros, denormals, large and shifted values, NaN and infinity come out as eager's do.",
    run,
)
