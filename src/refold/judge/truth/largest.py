"""What float64 gives for some samples, read from what it gives for the most of them.

A life of many numbers of samples calls each on the first of the same ones. Where samples do not
depend on one another, float64 need be run on the most of them alone: the others are its rows. That
they do not is asked of float64 once, on the fewest, and of eager for each number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refold.judge.draws.trees import tensors
from refold.judge.rule.compare import acquitted
from refold.judge.truth.live import Lived
from refold.judge.worker.steps import Step

_ALIKE = 1e-10  # of the largest value: float64 sums in another order
_LEAST = 3  # calls


def read(
    label: str,
    steps: Sequence[Step],
    eager: Mapping[str, tuple[str, Any]],
    wide: Callable[[str], Lived],
) -> Lived | None:
    """What float64 shows at a call; None where that cannot be known from the most samples.
    ``wide``: float64's life with one call."""
    sizes = {s["label"]: s["rows"] for s in steps if s["do"] == "call" and "rows" in s}
    if label not in sizes or len(sizes) < _LEAST:
        return None
    most, fewest = (choose(sizes, key=lambda name: sizes[name]) for choose in (max, min))
    if label in (most, fewest):
        return None
    kind, value = eager[label]
    there = first(eager[most][1], value)
    if there is None or not acquitted(value, there):
        return None
    lived = wide(most), wide(fewest)
    if any(one.raised is not None for one in lived):
        return None
    truth, few = lived[0].seen[most][1], lived[1].seen[fewest][1]
    return Lived({label: (kind, first(truth, value))}, None) if _alike(truth, few) else None


def first(tree: Any, like: Any) -> Any:
    """The tree with so many samples as another one has; None where they differ otherwise."""
    if isinstance(tree, torch.Tensor) and isinstance(like, torch.Tensor):
        if tree.dim() != like.dim():
            return None
        other = [i for i, (a, b) in enumerate(zip(tree.shape, like.shape, strict=True)) if a != b]
        if len(other) != 1 or tree.shape[other[0]] < like.shape[other[0]]:
            return None
        return tree.narrow(other[0], 0, like.shape[other[0]])
    if isinstance(tree, list | tuple) and isinstance(like, list | tuple) and len(tree) == len(like):
        parts = [first(a, b) for a, b in zip(tree, like, strict=True)]
        make = getattr(type(tree), "_make", type(tree))  # of a named tuple
        return None if any(p is None for p in parts) else make(parts)
    if isinstance(tree, dict) and isinstance(like, dict) and tree.keys() == like.keys():
        named = {k: first(v, like[k]) for k, v in tree.items()}
        return None if any(p is None for p in named.values()) else named
    return None


def _alike(most: Any, few: Any) -> bool:
    there = first(most, few)
    if there is None:
        return False
    for a, b in zip(tensors(there), tensors(few), strict=True):
        if not bool(torch.isfinite(b).all()):
            return False
        if b.numel() and float((a - b).abs().max()) > _ALIKE * float(b.abs().max()):
            return False
    return True
