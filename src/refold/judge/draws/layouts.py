"""The same values in other strides, at other offsets, in one tensor instead of several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge.draws.inputs import alone
from refold.judge.draws.trees import every, inexact, joined, mapped, tensors

CHANNELS_LAST = "channels last"
_PAIRS = 3  # of inputs that are alike
_BAND = 64  # elements on either side; keeps the alignment of a fresh allocation


def twice(inputs: list[Any]) -> list[Any]:
    """One tensor wherever several have its shape and type; nothing where there are no two."""
    seen: dict[Any, int] = {}
    held = tensors(inputs)
    first = [seen.setdefault((t.shape, t.dtype), i) for i, t in enumerate(held)]
    return joined(inputs, first) if len(seen) < len(held) else []


def pairs(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One tensor for two of three or more alike, others for the rest: as a query that is the key,
    but not the value."""
    alike: dict[Any, list[int]] = {}
    held = tensors(inputs)
    for i, t in enumerate(held):
        alike.setdefault((t.shape, t.dtype), []).append(i)
    for group in (g for g in alike.values() if len(g) > 2):
        for a, b in itertools.islice(itertools.combinations(group, 2), _PAIRS):
            first = [a if i == b else i for i in range(len(held))]
            yield f"one tensor for inputs {a} and {b}", joined(inputs, first)


def windows(t: torch.Tensor) -> torch.Tensor:
    """Samples that overlap in memory, as frames of a signal do; other values than before."""
    if t.dim() < 2 or t.shape[0] < 2 or not t.is_floating_point() or t[0].numel() < 2:
        return t
    dense = t.contiguous()
    return dense.as_strided(t.shape, (max(1, t[0].numel() // 2), *dense.stride()[1:]))


def slices(inputs: list[Any]) -> list[Any]:
    """Tensors that are alike but in the last axis as slices of one, as a projection of several
    gives them; nothing where there are no two."""
    held = tensors(inputs)
    groups: dict[Any, list[int]] = {}
    for i, t in enumerate(held):
        if t.dim() and t.is_floating_point():
            groups.setdefault((t.shape[:-1], t.dtype), []).append(i)
    made = dict(enumerate(held))
    for group in groups.values():
        whole = torch.cat([held[i] for i in group], dim=-1)
        widths = [held[i].shape[-1] for i in group]
        made |= dict(zip(group, torch.split(whole, widths, dim=-1), strict=True))
    if all(len(group) < 2 for group in groups.values()):
        return []
    numbers = iter(range(len(held)))
    return [every(v, lambda _: made[next(numbers)]) for v in inputs]


def overlaid(inputs: list[Any]) -> list[Any]:
    """Two tensors of one shape that begin at one address, the second in steps of two; nothing where
    there are no two. Values of the first become the second's; done twice it is as done once."""
    held = tensors(inputs)
    made, seen = dict(enumerate(held)), dict[Any, int]()
    for i, t in enumerate(held):
        if t.dim() and t.numel() > 1:
            seen.setdefault((t.shape, t.dtype), i)
    for j, t in enumerate(held):
        i = seen.get((t.shape, t.dtype), j)
        if i != j and made[i] is held[i]:
            whole = torch.cat([held[i].reshape(-1), t.reshape(-1)])
            whole[::2] = t.reshape(-1)
            made |= {i: whole[: t.numel()].view(t.shape), j: whole[::2].view(t.shape)}
    if all(made[i] is t for i, t in enumerate(held)):
        return []
    numbers = iter(range(len(held)))
    return [every(v, lambda _: made[next(numbers)]) for v in inputs]


TOGETHER: dict[str, Callable[[list[Any]], list[Any]]] = {
    "slices of one tensor": slices,
    "tensors that begin at one address": overlaid,
}


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

    def shifted(t: torch.Tensor, by: int = 1) -> torch.Tensor:
        storage = torch.zeros((by + t.numel(),), dtype=t.dtype)
        storage[:] = fill(t)
        storage[by:] = t.reshape(-1)
        return storage[by:].view(t.shape)

    def expanded(t: torch.Tensor) -> torch.Tensor:
        if t.dim() < 2 or t.shape[0] < 2:
            return t
        return t[:1].contiguous().expand(t.shape)

    yield "transposed", every(inputs, transposed)
    yield "every second column", every(inputs, sliced)
    yield "slice of wider rows", every(inputs, padded)
    yield "storage shifted by one element", every(inputs, shifted)
    for by in (2, 3):  # of the four that a vector of 16 bytes holds
        case = f"storage shifted by {by} elements"
        yield case, every(inputs, lambda t, by=by: shifted(t, by))
    yield "expanded row", mapped(inputs, expanded)
    yield "samples that overlap", mapped(inputs, windows)
    if any(t.dim() in (4, 5) for t in tensors(inputs)):
        images = every(inputs, lambda t: otherwise_laid(t) if t.dim() in (4, 5) else t)
        yield CHANNELS_LAST, images
    for change in (transposed, sliced):
        for case, mixed in alone(inputs, every(inputs, change)):
            yield f"{change.__name__}: {case}", mixed


def axes(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same values, each axis of each input a slice of a longer one, in rows and otherwise laid,
    or exchanged with the first; then expanded along each axis, which gives it other values."""
    most = max([t.dim() for t in tensors(inputs)], default=0)

    def narrowed(t: torch.Tensor, axis: int, lay: Any = None) -> torch.Tensor:
        if axis >= t.dim() or not t.shape[axis]:
            return t
        wide = torch.cat([t, t, t], dim=axis)
        wide = lay(wide) if lay else wide
        return wide.narrow(axis, t.shape[axis], t.shape[axis])

    def exchanged(t: torch.Tensor, axis: int) -> torch.Tensor:
        if axis >= t.dim():
            return t
        return t.transpose(0, axis).contiguous().transpose(0, axis)

    def expanded(t: torch.Tensor, axis: int) -> torch.Tensor:
        if axis >= t.dim() or t.shape[axis] < 2 or not t.is_floating_point():
            return t
        return t.narrow(axis, 0, 1).contiguous().expand(t.shape)

    for axis in range(most):
        yield f"axis {axis} of a longer tensor", every(inputs, lambda t, a=axis: narrowed(t, a))
        crop = f"axis {axis} of a longer tensor that is otherwise laid"  # a crop, channels last
        yield crop, every(inputs, lambda t, a=axis: narrowed(t, a, otherwise_laid))
        if axis:
            yield f"axis {axis} outermost", every(inputs, lambda t, a=axis: exchanged(t, a))
        yield f"axis {axis} expanded", every(inputs, lambda t, a=axis: expanded(t, a))


def one_for_all(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """One of several inputs with a single row, or column, which is for all where it is taken."""
    count = len(tensors(inputs))
    for at in range(count if count > 1 else 0):
        for axis in (0, 1):
            numbers = iter(range(count))

            def narrowed(t: torch.Tensor, at: int = at, axis: int = axis, n: Any = numbers) -> Any:
                fits = next(n) == at and t.dim() > axis and t.shape[axis] > 1
                return t.narrow(axis, 0, 1).contiguous() if fits else t

            yield f"input {at} with one for all along axis {axis}", every(inputs, narrowed)


def otherwise_laid(t: torch.Tensor) -> torch.Tensor:
    """The same values in other strides: channels last, or the last two axes exchanged."""
    if t.dim() in (4, 5):
        last = torch.channels_last if t.dim() == 4 else torch.channels_last_3d
        return t.contiguous(memory_format=last)
    return t if t.dim() < 2 else t.transpose(-1, -2).contiguous().transpose(-1, -2)


def shifted(t: torch.Tensor) -> torch.Tensor:
    """The same values one element behind the beginning of their memory."""
    room = torch.zeros(1 + t.numel(), dtype=t.dtype, device=t.device)
    room[1:] = t.reshape(-1)
    return room[1:].view(t.shape)


LAID: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "strides": otherwise_laid,
    "shifted": shifted,
    "contiguous": lambda t: t.contiguous().clone(),
}


def bedded(tree: Any, fill: float) -> Any:
    """Floating and complex tensors copied, between bands of ``fill`` in their own storage."""

    def bed(t: torch.Tensor) -> torch.Tensor:
        size = t.numel()
        storage = torch.full((size + 2 * _BAND,), fill, dtype=t.dtype, device=t.device)
        storage[_BAND : _BAND + size] = t.reshape(-1)
        return storage[_BAND : _BAND + size].view(t.shape)

    return every(tree, lambda t: bed(t) if inexact(t) else t)
