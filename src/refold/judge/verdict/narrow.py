"""Outputs of a narrower type than the usual one, and whole numbers that come of such."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

from refold.judge.draws.trees import differ, inexact
from refold.judge.rule import beside, compare, rows
from refold.judge.truth.runs import distance

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


def by_order(got: Any, value: Any, exact: Any) -> bool:
    """Whether outputs of 16 bits err as another order of long sums may. It errs unevenly, as sums
    of float32 do: the usual error is held to the bar of 16 bits, over all rows, and the largest to
    so many times eager's as float32's is."""
    mine, theirs = list(compare.leaves(got)), list(compare.leaves(value))
    truths = dict(compare.leaves(exact))
    for (name, a), (_, b) in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor) or not inexact(b):
            if differ(a, b) or (not isinstance(b, torch.Tensor) and a != b):
                return False
            continue
        truth = beside.whole(truths[name])
        if not truth.numel():
            continue
        if a.shape != truth.shape or lost(a, b, truth):
            return False
        (rms, most), (usual, usual_most) = distance(a, truth), distance(b, truth)
        scale = torch.where(torch.isfinite(truth), truth, 0.0).abs()
        rough = scale.amax(-1) if scale.dim() and scale.shape[-1] >= rows.FEW else scale.max()
        floor = 2 * torch.finfo(b.dtype).eps * float(rough.square().mean().sqrt())
        bar = rows.factor(b.dtype) * usual + floor
        if rms > bar or most > max(bar, rows.K_MAX_FLOAT32 * usual_most):
            return False
    return True


def lost(got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether a value is no number where eager's and the truth are."""
    known = torch.isfinite(eager) & torch.isfinite(truth).to(eager.device)
    return bool((known & ~torch.isfinite(got.to(eager.device))).any())


def _whole(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not inexact(value)
