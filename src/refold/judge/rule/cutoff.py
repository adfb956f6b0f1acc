"""Whether 16-bit results have their last bits cut off instead of rounded.

Who takes the upper half of a float32 for a bfloat16 rounds toward zero. Each result is off by less
than one unit in the last place, which every bar of 16 bits allows; but all are too small, and sums
of many such results drift. Honest roundings go both ways, whichever the order of the operations.
"""

from __future__ import annotations

import torch

from refold.judge.rule.beside import Exact, piece, slices

REASON = "last bits cut off, where eager rounds to the nearest"
_TYPES = (torch.float16, torch.bfloat16)
_LEAST = 24  # results of each kind: fewer say nothing
_ALL = 0.98
_DOWN, _UP = (0.1, 0.4), (0.6, 0.9)  # parts of a unit: where rounding goes down, and up
_LEANING = 0.6  # of those that differ from eager's


def may_be(got: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether results lean toward zero beside eager's of the same type and shape: then they are not
    taken for eager's, however near they are."""
    if got.dtype not in _TYPES or got.numel() < 4 * _LEAST:
        return False
    less = int((got.abs() < eager.abs()).sum())
    return less >= _LEAST and less > _LEANING * int((got != eager).sum())


def found(got: torch.Tensor, eager: torch.Tensor, exact: Exact) -> bool:
    """Whether nearly all results are the next number of their type toward zero from the float64
    run, where rounding to the nearest goes up as well as where it goes down; and eager's are
    not."""
    if not may_be(got, eager):
        return False
    info = torch.finfo(got.dtype)
    counts = torch.zeros(5, dtype=torch.int64)
    for at in slices(got.numel(), eager.device):
        mine, theirs, truth = (piece(t, at).to(eager.device).double() for t in (got, eager, exact))
        size = truth.abs()
        normal = torch.isfinite(size) & (size > info.tiny) & (size < info.max / 2)
        unit = size / torch.frexp(size).mantissa / 2 * info.eps  # all of them powers of two
        below = torch.floor(size / unit)
        part = size / unit - below
        cut = torch.copysign(below * unit, truth)
        down, up = (normal & (part >= low) & (part <= high) for low, high in (_DOWN, _UP))
        kinds = (down, down & (mine == cut), up, up & (mine == cut), up & (theirs == cut))
        counts += torch.stack([k.sum() for k in kinds]).cpu()
    downs, downs_cut, ups, ups_cut, ups_eager = counts.tolist()
    whole = min(downs, ups) >= _LEAST
    return bool(whole and min(downs_cut / downs, ups_cut / ups) >= _ALL and 2 * ups_eager < ups)


def first(got: torch.Tensor, eager: torch.Tensor) -> int:
    """Where the first result lies that is not eager's."""
    return int((got != eager).reshape(-1).byte().argmax())
