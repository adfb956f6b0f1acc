"""Outputs of a narrower type than the usual one, and whole numbers that come of such."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

from refold.judge.draws.trees import inexact
from refold.judge.rule import beside, compare

_OFTEN = 3  # times as often as eager, as of errors of 16 bits


def narrower(got: Any, value: Any) -> bool:
    """Whether the outputs differ in nothing but their dtypes."""
    pairs = list(zip(compare.leaves(got), compare.leaves(value), strict=False))
    both = [(a, b) for (_, a), (_, b) in pairs if isinstance(a, torch.Tensor)]
    both = [(a, b) for a, b in both if isinstance(b, torch.Tensor)]
    return any(a.dtype != b.dtype for a, b in both) and all(a.shape == b.shape for a, b in both)


def rounded(got: Any, value: Any) -> bool:
    """The same, of numbers that are no whole ones: to cut these off is no matter of rounding."""
    floats = (inexact(t) for _, t in compare.leaves(got) if isinstance(t, torch.Tensor))
    return narrower(got, value) and all(floats)


def as_often(name: str, got: Any, value: Any, exact: Any) -> bool:
    """Whether an output of whole numbers differs from the truth about as often as eager's does.
    Where eager computes in 16 bits it rounds many otherwise than float64 would, and an honest
    order rounds others: no few ties, which could be proven."""
    trees = (got, value, beside.whole(exact))
    mine, theirs, truth = (dict(compare.leaves(tree)).get(name) for tree in trees)
    if not (_whole(mine) and _whole(theirs) and _whole(truth)):
        return False
    if not mine.shape == theirs.shape == truth.shape or mine.dtype != theirs.dtype:
        return False
    wrong, usual = (int((t.to(truth.device) != truth).sum()) for t in (mine, theirs))
    return wrong <= _OFTEN * usual


def _whole(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not inexact(value)
