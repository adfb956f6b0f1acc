"""Inputs: zero-mean normals at three scales, other shapes, other numbers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import torch

from refold.judge.draws.trees import every, tensors, valued
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

    result: list[Any] = valued(inputs, change)
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
_ODD = 6  # axes that are odd at once
_BLOCKS = 64, 256  # of rows or columns, of many kernels
_TAIL = 9  # places at least behind the first block
_LASTING, _OPEN = 321, 16.0  # places, and what gates of ordinary numbers are opened by
_PRIME, _FAR = 1000003, 1 << 40
_LONG = 1025  # of a sequence: tables of places, and states that are cut, end before it


def larger_batch(inputs: list[Any]) -> int:
    """A batch of several times the file's, where that stays small; an odd number for most."""
    held = tensors(inputs)
    batch = held[0].shape[0] if held and held[0].dim() else 0
    most = max((t.numel() for t in held), default=0)
    times = max(1, min(8, _SMALL // max(most, 1)))
    return times * batch + 1


def shapes(
    inputs: list[Any], quick: bool, others: Iterable[int] = (), secret: Random | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """Batches 0, 1, odd and +1, and ``others``; then every other dimension: one more, odd, and with
    ``secret`` small ones, blocks of 64 and 256, other axes' sizes, and sizes that it draws."""
    all_tensors = tensors(inputs)
    if not all_tensors or all_tensors[0].dim() == 0:
        return
    batch = all_tensors[0].shape[0]
    first = [(i, 0) for i, t in enumerate(all_tensors) if t.dim() and t.shape[0] == batch]
    sizes = [0, 1, 3, batch + 1] if quick else [0, 1, 3, max(batch - 1, 2), batch + 1, 37]
    for new in dict.fromkeys(s for s in (*sizes, *others) if s != batch):
        yield f"batch {new}", resized(inputs, batch, new, iter(first))
    groups = list(dimensions(inputs))
    yield from _exchanged(inputs, batch, first, groups)
    several = {pair for _, dims, _ in groups if len(dims) > 1 for pair in dims}
    for name, dims, size in groups:
        sizes = [size + 1] if quick else [size + 1, max(1, size // 2) | 1]
        if secret is not None:
            small, blocks = [1, 3], _blocks(inputs, dims, size)
            if quick and several & set(dims):  # axes of one size, as of an image: some each
                together = len(dims) > 1
                small, blocks = ([3], blocks[:1]) if together else ([1], blocks[1:])
            sizes += [*small, *blocks, *_square(inputs, dims, size)]
            sizes += secret.sample(range(2, max(_BLOCKS[0], size)), 1 if quick else 3)
            # of several blocks the last one may have any number of places, not one alone
            several_blocks = secret.randrange(_BLOCKS[0] + _TAIL, _BLOCKS[1])
            sizes += [several_blocks] if _small(inputs, dims, size, several_blocks) else []
        for new in dict.fromkeys(s for s in sizes if s != size):
            yield f"{name} = {new}", resized(inputs, size, new, iter(dims))


def odd(inputs: list[Any], takes: Callable[[list[Any]], bool]) -> list[Any] | None:
    """The inputs with every axis of an odd number of places that the reference takes so; None where
    it does so with no two. Where one axis is a whole number of blocks, so are all elements."""
    held = tensors(inputs)
    if not held or not held[0].dim():
        return None
    batch, found, changed = held[0].shape[0], inputs, 0
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    for dims, size in [(first, batch), *((dims, size) for _, dims, size in dimensions(inputs))]:
        now = tensors(found)
        if size % 2 == 0 and all(now[i].shape[d] == size for i, d in dims) and changed < _ODD:
            more = resized(found, size, size + 1, iter(dims))
            if takes(more):
                found, changed = more, changed + 1
    return found if changed > 1 else None


def _exchanged(
    inputs: list[Any],
    batch: int,
    first: list[tuple[int, int]],
    groups: list[tuple[str, list[tuple[int, int]], int]],
) -> Iterator[tuple[str, list[Any]]]:
    """As many samples as another axis is long, which is as long as there were samples, and two axes
    of one tensor alike: tables that are known by their number of elements are as long as before."""
    for name, dims, size in groups[:_TENSORS]:
        if size != batch and batch and not set(dims) & set(first):
            fewer = resized(inputs, batch, size, iter(first))
            yield f"the batch and {name} exchanged", resized(fewer, size, batch, iter(dims))
    single = [(dims[0], size) for _, dims, size in groups if len(dims) == 1]
    pairs = [(a, b) for a, b in itertools.combinations(single, 2) if a[0][0] == b[0][0]]
    for (one, old), (two, new) in [p for p in pairs if p[0][1] != p[1][1]][:_TENSORS]:
        other = resized(inputs, old, new, iter([one]))
        case = f"input {one[0]} dims {one[1]} and {two[1]} exchanged"
        yield case, resized(other, new, old, iter([two]))


def dimensions(inputs: list[Any]) -> Iterator[tuple[str, list[tuple[int, int]], int]]:
    """Each axis but the batch, alone and together with all that have its size: as (tensor, axis),
    with that size."""
    all_tensors = tensors(inputs)
    batch = all_tensors[0].shape[0]
    first = [(i, 0) for i, t in enumerate(all_tensors) if t.dim() and t.shape[0] == batch]
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
                if tuple(dims) not in seen:
                    seen.add(tuple(dims))
                    yield ", ".join(f"input {j} dim {e}" for j, e in dims), dims, size


def _blocks(inputs: list[Any], dims: list[tuple[int, int]], size: int) -> list[int]:
    """The size of a block of many kernels, and one more than that of a large one (of the small one
    where that is too much), and a long one of one axis alone; or twice the size."""
    small = functools.partial(_small, inputs, dims, size)
    if size >= _BLOCKS[0]:
        return [2 * size] if small(2 * size) else []
    large = next((n + 1 for n in reversed(_BLOCKS) if small(n + 1)), 0)
    return [n for n in (_BLOCKS[0], large, _LONG if len(dims) == 1 else 0) if n and small(n)]


def _small(inputs: list[Any], dims: list[tuple[int, int]], size: int, new: int) -> bool:
    """Whether inputs are small whose axes have another size."""
    held, times = tensors(inputs), new / max(size, 1)
    most = (held[i].numel() * times ** sum(j == i for j, _ in dims) for i, _ in dims)
    return max(most) <= _SMALL


def _square(inputs: list[Any], dims: list[tuple[int, int]], size: int) -> list[int]:
    """The sizes of other axes of the same tensor: who tells axes by their sizes takes one for
    another then."""
    shape = tensors(inputs)[dims[0][0]].shape
    found = dict.fromkeys(n for n in reversed(shape) if n > 1)
    return [n for n in found if n != size and _small(inputs, dims, size, n)][:_TENSORS]


def far_whole(inputs: list[Any]) -> list[Any] | None:
    """Whole numbers of 64 bits far from zero, every other one negative; None where there are
    none."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.dtype is not torch.int64 or not t.numel():
            return t
        odd = (torch.arange(t.numel()) % 2).bool().reshape(t.shape)
        return torch.where(odd, -1 - t * _PRIME, t + _FAR)

    there = any(t.dtype is torch.int64 and t.numel() for t in tensors(inputs))
    return [every(v, change) for v in inputs] if there else None


def longer(inputs: list[Any], dims: list[tuple[int, int]], size: int) -> int:
    """A size of axes, of one alone where that stays small, beyond several blocks of any kernel, and
    no whole number of these; else one more than a small block, or twice the size."""
    block = _BLOCKS[0] + 1
    if len(dims) == 1 and size < _LASTING and _small(inputs, dims, size, _LASTING):
        return _LASTING
    return block if size < block else 2 * size


def lasting(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Each axis but the batch long, with large numbers that are the same at every place: gates
    stand open or closed throughout, so that what lies far back shows in what comes out."""
    held = tensors(inputs)
    if not held or not held[0].dim():
        return
    groups = [g for g in dimensions(inputs) if any(held[i].is_floating_point() for i, _ in g[1])]
    for name, dims, size in groups[:_TENSORS]:
        if not size or size >= _LASTING or not _small(inputs, dims, size, _LASTING):
            continue
        counter = iter(range(1 << 30))

        def change(t: torch.Tensor, dims: Any = dims, n: Iterator[int] = counter) -> torch.Tensor:
            i, plain = next(n), not t.is_floating_point()
            for _, d in [pair for pair in dims if pair[0] == i]:
                index = torch.arange(_LASTING) % (t.shape[d] if plain else 1)
                t = t.index_select(d, index)
            return t if plain else t * _OPEN

        yield f"{name} = {_LASTING}, large and alike", [every(v, change) for v in inputs]


def stretched(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Each axis but the batch as long as sequences are."""
    held = tensors(inputs)
    if not held or not held[0].dim():
        return
    for name, dims, size in list(dimensions(inputs))[:_TENSORS]:
        if 0 < size < _LONG and _small(inputs, dims, size, _LONG):
            yield f"{name} = {_LONG}", resized(inputs, size, _LONG, iter(dims))


def scalars(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One plain number or switch at a time with another value: whole ones as others, too, and
    zero, one, and of the other sign."""

    def put(tree: Any, at: int, counter: Iterator[int], change: Any) -> Any:
        if isinstance(tree, list | tuple):
            return type(tree)([put(v, at, counter, change) for v in tree])
        if isinstance(tree, dict):
            return {k: put(v, at, counter, change) for k, v in tree.items()}
        if not isinstance(tree, bool | int | float) or next(counter) != at:
            return tree
        found.append(tree)
        return change(tree)

    for at in range(_NUMBERS):
        for word, change in _CHANGES:
            found: list[Any] = []
            numbers = itertools.count()
            result = [put(v, at, numbers, change) for v in inputs]
            if not found:
                return
            other = change(found[0])
            if other is not None and (type(other) is not type(found[0]) or other != found[0]):
                yield f"number {at}, {found[0]!r}, {word}", result


def _more(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    # of many bits: float32 has no such number
    return value + 1 if isinstance(value, int) else 1.3 * value


def _broken(value: Any) -> Any:
    """Half a unit more than a whole number, of whichever type: who takes it for whole cuts it."""
    whole = not isinstance(value, bool) and math.isfinite(value) and value == math.floor(value)
    return value + 0.5 if whole else None


def _of_numbers(change: Any) -> Any:
    """A change of numbers: switches have none."""
    return lambda value: None if isinstance(value, bool) else change(value)


CHANGED = "changed"
_CHANGES = (
    (CHANGED, _more),
    ("no whole one", lambda value: _broken(value)),
    ("zero", _of_numbers(lambda value: type(value)(0))),
    ("one", _of_numbers(lambda value: type(value)(1))),
    ("of the other sign", _of_numbers(lambda value: -value)),
)


def alone(inputs: list[Any], others: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One tensor at a time as in ``others``, where there are several."""
    mine, theirs = tensors(inputs), tensors(others)
    for at in range(min(len(mine), _TENSORS) if len(mine) > 1 else 0):
        order = iter(range(len(mine)))

        def chosen(t: torch.Tensor, at: int = at, order: Iterator[int] = order) -> torch.Tensor:
            return theirs[at] if next(order) == at else t

        yield f"input {at} alone", [every(v, chosen) for v in inputs]


def masks(held: list[torch.Tensor]) -> list[torch.Tensor]:
    """Boolean tensors for an argument that is none of these: of the sizes of their first axis, of
    their first two and of all, one with some values set and the last among them, the reverse, and
    one with none.
    """
    sizes = [t.shape[:n] for n in (1, 2) for t in held if t.dim() >= n]
    sizes += [t.shape for t in held]
    found = []
    for size in dict.fromkeys(size for size in sizes if size.numel()):
        there = torch.arange(size.numel()).flip(0).reshape(size) % 5 % 2 == 0
        found += [there, ~there, torch.zeros_like(there)]
    return found


def two_valued(t: torch.Tensor) -> bool:
    """Whether a tensor may be a mask: of two values, both of which it has unless it is boolean."""
    return t.numel() > 1 and (t.dtype is torch.bool or len(set(t.reshape(-1).tolist())) == 2)
