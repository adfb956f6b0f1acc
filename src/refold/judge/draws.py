"""Inputs: the file's own, zero-mean normals at three scales, other shapes and other layouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.compare import all_finite
from refold.judge.oracle import inexact, tensors

_NUMBERS = 8  # plain numbers of which each gets another value
_TENSORS = 4  # inputs of which each is changed alone
_BAND = 64  # elements on either side; keeps the alignment of a fresh allocation
SCALES = (2.0**-20, 1.0, 2.0**10)


def mapped(tree: Any, change: Any) -> Any:
    """The tree with ``change`` applied to each floating tensor."""
    if isinstance(tree, torch.Tensor):
        return change(tree) if tree.is_floating_point() else tree
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(v, change) for v in tree)
    if isinstance(tree, dict):
        return {k: mapped(v, change) for k, v in tree.items()}
    return tree


def normal(inputs: list[Any], scale: float, seed: int) -> list[Any]:
    """Zero-mean normal values of a scale in the floating inputs' shapes."""
    generator = torch.Generator().manual_seed(seed)

    def change(t: torch.Tensor) -> torch.Tensor:
        return (torch.randn(t.shape, generator=generator) * scale).to(t.dtype)

    result: list[Any] = mapped(inputs, change)
    return result


def has_floats(inputs: list[Any]) -> bool:
    """Whether any input can carry a distribution."""
    return any(t.is_floating_point() and t.numel() for t in tensors(inputs))


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


def every(tree: Any, change: Any) -> Any:
    """The tree with ``change`` applied to each tensor."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(every(v, change) for v in tree)
    if isinstance(tree, dict):
        return {k: every(v, change) for k, v in tree.items()}
    return tree


def shapes(inputs: list[Any], quick: bool) -> Iterator[tuple[str, list[Any]]]:
    """Batches 0, 1, odd and +1; then every other dimension, one more and odd."""
    all_tensors = tensors(inputs)
    if not all_tensors or all_tensors[0].dim() == 0:
        return
    batch = all_tensors[0].shape[0]
    first = [(i, 0) for i, t in enumerate(all_tensors) if t.dim() and t.shape[0] == batch]
    sizes = [0, 1, 3, batch + 1] if quick else [0, 1, 3, max(batch - 1, 2), batch + 1, 37]
    for new in dict.fromkeys(s for s in sizes if s != batch):
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
    """One plain number or switch at a time with another value."""

    def changed(tree: Any, at: int, counter: Iterator[int]) -> Any:
        if isinstance(tree, list | tuple):
            return type(tree)([changed(v, at, counter) for v in tree])
        if isinstance(tree, dict):
            return {k: changed(v, at, counter) for k, v in tree.items()}
        if not isinstance(tree, bool | int | float) or next(counter) != at:
            return tree
        found.append(tree)
        if isinstance(tree, bool):
            return not tree
        return tree + 1 if isinstance(tree, int) else 1.5 * tree

    for at in range(_NUMBERS):
        found: list[Any] = []
        result = [changed(v, at, counter) for counter in [itertools.count()] for v in inputs]
        if not found:
            return
        yield f"number {at}, {found[0]!r}, changed", result


def alone(inputs: list[Any], others: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One tensor at a time as in ``others``, where there are several."""
    mine, theirs = tensors(inputs), tensors(others)
    for at in range(min(len(mine), _TENSORS) if len(mine) > 1 else 0):
        order = iter(range(len(mine)))

        def chosen(t: torch.Tensor, at: int = at, order: Iterator[int] = order) -> torch.Tensor:
            return theirs[at] if next(order) == at else t

        yield f"input {at} alone", [every(v, chosen) for v in inputs]


def firsts(inputs: list[Any]) -> list[int]:
    """Of each tensor the number of the first that is the same object."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(id(t), i) for i, t in enumerate(tensors(inputs))]


def joined(inputs: list[Any], first: list[int]) -> list[Any]:
    """Each tensor replaced by the one of this number."""
    held, order = tensors(inputs), iter(first)
    return [every(v, lambda _: held[next(order)]) for v in inputs]


def twice(inputs: list[Any]) -> list[Any]:
    """One tensor wherever several have its shape and type; nothing where there are no two."""
    seen: dict[Any, int] = {}
    held = tensors(inputs)
    first = [seen.setdefault((t.shape, t.dtype), i) for i, t in enumerate(held)]
    return joined(inputs, first) if len(seen) < len(held) else []


def layouts(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same values under other strides and offsets; ``expanded`` has other values."""

    def fill(t: torch.Tensor) -> Any:
        # beside integers an integer that may stand there: an index stays one
        if t.is_floating_point():
            return 3.0e4
        return t.reshape(-1)[0] if t.numel() else 0

    def transposed(t: torch.Tensor) -> torch.Tensor:
        if t.dim() < 2:
            return t
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)

    def sliced(t: torch.Tensor) -> torch.Tensor:
        if t.dim() == 0:
            return t
        wide = torch.zeros((*t.shape[:-1], t.shape[-1] * 2), dtype=t.dtype)
        wide[:] = fill(t)
        wide[..., ::2] = t
        return wide[..., ::2]

    def padded(t: torch.Tensor) -> torch.Tensor:
        if t.dim() < 2:
            return t
        wide = torch.zeros((*t.shape[:-1], t.shape[-1] + 3), dtype=t.dtype)
        wide[:] = fill(t)
        wide[..., 1:-2] = t
        return wide[..., 1:-2]

    def shifted(t: torch.Tensor) -> torch.Tensor:
        storage = torch.zeros((1 + t.numel(),), dtype=t.dtype)
        storage[:] = fill(t)
        storage[1:] = t.reshape(-1)
        return storage[1:].view(t.shape)

    def expanded(t: torch.Tensor) -> torch.Tensor:
        if t.dim() < 2 or t.shape[0] < 2:
            return t
        return t[:1].contiguous().expand(t.shape)

    yield "transposed", every(inputs, transposed)
    yield "every second column", every(inputs, sliced)
    yield "slice of wider rows", every(inputs, padded)
    yield "storage shifted by one element", every(inputs, shifted)
    yield "expanded row", mapped(inputs, expanded)
    for change in (transposed, sliced):
        for case, mixed in alone(inputs, every(inputs, change)):
            yield f"{change.__name__}: {case}", mixed


def otherwise_laid(t: torch.Tensor) -> torch.Tensor:
    """The same values in other strides: channels last, or the last two axes exchanged."""
    if t.dim() in (4, 5):
        last = torch.channels_last if t.dim() == 4 else torch.channels_last_3d
        return t.contiguous(memory_format=last)
    return t if t.dim() < 2 else t.transpose(-1, -2).contiguous().transpose(-1, -2)


def bedded(tree: Any, fill: float) -> Any:
    """Floating tensors copied, contiguous, between bands of ``fill`` in their own storage."""

    def bed(t: torch.Tensor) -> torch.Tensor:
        size = t.numel()
        storage = torch.full((size + 2 * _BAND,), fill, dtype=t.dtype, device=t.device)
        storage[_BAND : _BAND + size] = t.reshape(-1)
        return storage[_BAND : _BAND + size].view(t.shape)

    return mapped(tree, bed)


def perturbed(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Every parameter and buffer changed; what was not negative stays so, counters move on."""
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for name, value in state.items():
        old = value.cpu()
        if old.is_complex() and old.numel():
            parts = torch.view_as_real(old.resolve_conj())
            moved = _moved(parts, torch.randn(parts.shape, generator=generator))
            result[name] = torch.view_as_complex(moved)
        elif old.is_floating_point() and old.numel():
            result[name] = _moved(old, torch.randn(old.shape, generator=generator))
        elif old.dtype in (torch.int64, torch.int32) and old.dim() == 0:
            result[name] = old + 3
        else:
            result[name] = old.clone()
    return result


def rolled(state: dict[str, torch.Tensor], shift: int) -> dict[str, torch.Tensor]:
    """Integer and boolean buffers with their last axis rolled: indices and masks stay such. What
    may be offsets, one after another in order, is left out."""
    found = {}
    for name, value in state.items():
        if inexact(value) or not value.dim() or value.shape[-1] < 2:
            continue
        old = value.cpu()
        if old.dim() == 1 and old.dtype != torch.bool and bool((old[1:] >= old[:-1]).all()):
            continue
        found[name] = old.roll(shift, -1)
    return found


def _moved(old: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Finite values moved by normal noise: by about a fifth of themselves and of their root mean
    square; where none is negative, by up to two fifths of themselves; zeros by a tenth."""
    noise = noise.to(torch.promote_types(old.dtype, noise.dtype))  # float64 keeps its bits
    finite, special, count = old, None, old.numel()
    if not all_finite(old):
        special = ~torch.isfinite(old)
        finite, count = old.masked_fill(special, 0.0), count - int(special.sum())
    norm = float(torch.linalg.vector_norm(finite))
    if math.isinf(norm):  # of numbers whose squares overflow
        norm = float(torch.linalg.vector_norm(finite, dtype=torch.float64))
    size = norm / math.sqrt(count) if count else 0.0
    if size == 0.0:
        new = noise.mul_(0.1)
    elif float(finite.amin()) >= 0.0:
        new = noise.tanh_().mul_(0.4).add_(1.0).mul_(finite)
    else:
        new = noise.tanh().mul_(0.2).add_(1.0).mul_(finite).add_(noise, alpha=0.2 * size)
    new = new.to(old.dtype)
    return new if special is None else torch.where(special, old, new)


def _integers(shape: torch.Size, low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Integers from low to high - 1, few enough for 24 bits, as float32: `randint` takes 22 ns for
    each."""
    return torch.rand(shape, generator=generator).mul_(high - low).floor_().add_(low)


def lattice(
    inputs: list[Any], state: dict[str, torch.Tensor], seed: int
) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Odd 13-bit integers in the inputs, -1, 0, 1 in the state.

    Sums of up to 2^11 products are exact in float32 in every order; ten-bit operands are not.
    """
    generator = torch.Generator().manual_seed(seed)

    def odd(t: torch.Tensor) -> torch.Tensor:
        drawn = _integers(t.shape, -3072, 3072, generator)
        # odd, from -8191 to -2049 or from 2049 to 8191
        return torch.where(drawn < 0, 2 * drawn - 2047, 2 * drawn + 2049).to(t.dtype)

    new = {}
    for name, value in state.items():
        if value.is_floating_point():
            new[name] = _integers(value.shape, -1, 2, generator).to(value.dtype)
        else:
            new[name] = value.cpu().clone()
    return mapped(inputs, odd), new
