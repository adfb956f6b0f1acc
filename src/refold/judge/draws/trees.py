"""Trees of tensors: what inputs and outputs are made of."""

from __future__ import annotations

import math
from typing import Any

import torch

from refold.judge.wire import plain


def inexact(t: torch.Tensor) -> bool:
    """Whether it holds rounded numbers."""
    return t.is_floating_point() or t.is_complex()


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [t for part in tree for t in tensors(part)]
    if isinstance(tree, dict):
        return [t for part in tree.values() for t in tensors(part)]
    held = plain.record(tree)
    return tensors(held) if held else []


def differ(a: Any, b: Any) -> bool:
    """Whether the tensors of two trees differ in any bit, or in their forms."""
    pairs = list(zip(tensors(a), tensors(b), strict=False))
    if any(x.shape != y.shape or x.dtype != y.dtype for x, y in pairs):
        return True
    return not all(torch.equal(x, y) for x, y in pairs)


def all_finite(t: torch.Tensor) -> bool:
    """In one pass that makes no tensor of its size: most results hold tens of millions."""
    return all(math.isfinite(end.item()) for end in torch.aminmax(t))


def each(tree: Any, change: Any) -> Any:
    """The tree with ``change`` applied to each leaf, whatever it is."""
    if isinstance(tree, list | tuple):
        return type(tree)(each(v, change) for v in tree)
    if isinstance(tree, dict):
        return {k: each(v, change) for k, v in tree.items()}
    if plain.record(tree) is not None:
        return plain.refilled(tree, lambda v: each(v, change))
    return change(tree)


def mapped(tree: Any, change: Any) -> Any:
    """The tree with ``change`` applied to each floating tensor."""
    return every(tree, lambda t: change(t) if t.is_floating_point() else t)


def every(tree: Any, change: Any) -> Any:
    """The tree with ``change`` applied to each tensor."""
    return each(tree, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def valued(tree: Any, change: Any) -> Any:
    """The tree with the values of floating tensors changed, and those of complex ones, whose parts
    stand one after the other in the last axis then. A change that gives another shape or type is
    none of values: complex tensors stay as they are."""

    def parts(t: torch.Tensor) -> torch.Tensor:
        real = torch.view_as_real(t.resolve_conj())
        flat = real.flatten(-2) if t.dim() else real
        changed = change(flat)
        if changed.shape != flat.shape or changed.dtype != flat.dtype:
            return t
        return torch.view_as_complex(changed.reshape(real.shape).contiguous())

    return mapped(every(tree, lambda t: parts(t) if t.is_complex() else t), change)


def has_floats(inputs: list[Any]) -> bool:
    """Whether any input has real numbers."""
    return any(t.is_floating_point() and t.numel() for t in tensors(inputs))


def has_numbers(inputs: list[Any]) -> bool:
    """Whether any input can carry a distribution."""
    return any(inexact(t) and t.numel() for t in tensors(inputs))


def firsts(inputs: list[Any]) -> list[int]:
    """Of each tensor the number of the first that is the same object."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(id(t), i) for i, t in enumerate(tensors(inputs))]


def joined(inputs: list[Any], first: list[int]) -> list[Any]:
    """Each tensor replaced by the one of this number."""
    held, order = tensors(inputs), iter(first)
    return [every(v, lambda _: held[next(order)]) for v in inputs]
