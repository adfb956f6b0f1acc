"""Inputs: zero-mean normals at three scales, other shapes, other numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from refold.judge.draws.trees import every, mapped, tensors
from refold.judge.wire.meter import size_of, spanned

_NUMBERS = 8  # plain numbers of which each gets another value
_TENSORS = 4  # inputs of which each is changed alone
SCALES = (2.0**-20, 1.0, 2.0**10)


@spanned("inputs drawn", lambda inputs, *_: size_of(inputs))
def normal(inputs: list[Any], scale: float, seed: int) -> list[Any]:
    """Zero-mean normal values of a scale in the floating inputs' shapes."""
    generator = torch.Generator().manual_seed(seed)

    def change(t: torch.Tensor) -> torch.Tensor:
        return (torch.randn(t.shape, generator=generator) * scale).to(t.dtype)

    result: list[Any] = mapped(inputs, change)
    return result


@spanned("inputs drawn", lambda inputs, *_: size_of(inputs))
def resized(inputs: list[Any], old: int, new: int, dims: Iterator[tuple[int, int]]) -> list[Any]:
    """Inputs with the given (tensor, dim) pairs resized; values repeat with small changes."""
    chosen = set(dims)
    counter = iter(range(1 << 30))
    generator = torch.Generator().manual_seed(old * 7919 + new)

    def change(t: torch.Tensor) -> torch.Tensor:
        i = next(counter)
        for j, d in chosen:
            if j == i:
                index = torch.arange(new) % max(t.shape[d], 1)
                t = t.index_select(d, index)
        if t.is_floating_point():
            t = t * (1 + 0.25 * torch.rand(t.shape, generator=generator)).to(t.dtype)
        return t

    return [every(v, change) for v in inputs]


_SMALL = 1 << 18  # elements of what a larger batch is made of


def larger_batch(inputs: list[Any]) -> int:
    """A batch of several times the file's, where that stays small; an odd number for most."""
    held = tensors(inputs)
    batch = held[0].shape[0] if held and held[0].dim() else 0
    most = max((t.numel() for t in held), default=0)
    times = max(1, min(8, _SMALL // max(most, 1)))
    return times * batch + 1


def shapes(
    inputs: list[Any], quick: bool, others: Iterable[int] = ()
) -> Iterator[tuple[str, list[Any]]]:
    """Batches 0, 1, odd and +1, and ``others``; then every other dimension, one more and odd."""
    all_tensors = tensors(inputs)
    if not all_tensors or all_tensors[0].dim() == 0:
        return
    batch = all_tensors[0].shape[0]
    first = [(i, 0) for i, t in enumerate(all_tensors) if t.dim() and t.shape[0] == batch]
    sizes = [0, 1, 3, batch + 1] if quick else [0, 1, 3, max(batch - 1, 2), batch + 1, 37]
    for new in dict.fromkeys(s for s in (*sizes, *others) if s != batch):
        yield f"batch {new}", resized(inputs, batch, new, iter(first))
    seen = set()
    for i, t in enumerate(all_tensors):
        for d in range(1, t.dim()):
            size = t.shape[d]
            together = [
                (j, e)
                for j, other in enumerate(all_tensors)
                for e in range(other.dim())
                if other.shape[e] == size and (j, e) not in first
            ]
            for dims in ([(i, d)], together):
                key = (tuple(dims), size)
                if key in seen:
                    continue
                seen.add(key)
                for new in (size + 1,) if quick else (size + 1, max(1, size // 2) | 1):
                    name = ", ".join(f"input {j} dim {e}" for j, e in dims)
                    yield f"{name} = {new}", resized(inputs, size, new, iter(dims))


def scalars(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One plain number or switch at a time with another value; whole ones as others, too."""

    def changed(tree: Any, at: int, counter: Iterator[int], by: float) -> Any:
        if isinstance(tree, list | tuple):
            return type(tree)([changed(v, at, counter, by) for v in tree])
        if isinstance(tree, dict):
            return {k: changed(v, at, counter, by) for k, v in tree.items()}
        if not isinstance(tree, bool | int | float) or next(counter) != at:
            return tree
        found.append(tree)
        if isinstance(tree, bool):
            return not tree
        return tree + by if isinstance(tree, int) else 1.5 * tree

    for at in range(_NUMBERS):
        for by in (1, 0.5):
            found: list[Any] = []
            numbers = itertools.count()
            result = [changed(v, at, numbers, by) for v in inputs]
            if not found:
                return
            if by == 1 or type(found[0]) is int:
                word = "changed" if by == 1 else "no whole one"
                yield f"number {at}, {found[0]!r}, {word}", result


def alone(inputs: list[Any], others: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One tensor at a time as in ``others``, where there are several."""
    mine, theirs = tensors(inputs), tensors(others)
    for at in range(min(len(mine), _TENSORS) if len(mine) > 1 else 0):
        order = iter(range(len(mine)))

        def chosen(t: torch.Tensor, at: int = at, order: Iterator[int] = order) -> torch.Tensor:
            return theirs[at] if next(order) == at else t

        yield f"input {at} alone", [every(v, chosen) for v in inputs]
