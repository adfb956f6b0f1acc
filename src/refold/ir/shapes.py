"""Shape and dtype of each op's result, from its inputs and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from refold.ir.dim import Dim, numel

if TYPE_CHECKING:
    from refold.ir.node import Node

RANK = 5  # a batch of images in three dimensions, each of some channels
Shape = tuple[Dim, ...]
Typed = tuple[Shape, torch.dtype]


def pad(shape: tuple[Dim, ...]) -> Shape:
    """`shape` with leading ones up to rank 5."""
    return (1,) * (RANK - len(shape)) + tuple(shape)


def broadcast(*shapes: Shape) -> Shape:
    """The common shape. Raises ValueError where two sizes differ and neither is 1."""
    first = shapes[0]
    if all(shape == first for shape in shapes[1:]):
        return first
    result: list[Dim] = []
    for dims in zip(*shapes, strict=True):
        wide = {d for d in dims if d != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {list(shapes)} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def no_inference(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    raise ValueError("this op's shape is given, not inferred: use leaf() or opaque()")


def one_dtype(inputs: Sequence[Node]) -> torch.dtype:
    """The dtype that all inputs have. Raises ValueError where they differ."""
    kinds = {n.dtype for n in inputs}
    if len(kinds) != 1:
        raise ValueError(f"inputs of different dtypes {sorted(map(str, kinds))}: cast first")
    return kinds.pop()


def pointwise(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    return broadcast(*(n.shape for n in inputs)), one_dtype(inputs)


def compare(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    one_dtype(inputs)
    return broadcast(*(n.shape for n in inputs)), torch.bool


def select(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    if inputs[0].dtype != torch.bool:
        raise ValueError(f"where takes a bool mask first, got {inputs[0].dtype}")
    return broadcast(*(n.shape for n in inputs)), one_dtype(inputs[1:])


def drawn(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    if len(attrs["shape"]) > RANK:
        raise ValueError(f"no value has {len(attrs['shape'])} dimensions")
    return pad(attrs["shape"]), attrs["dtype"]


def drawn_mask(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    return drawn(inputs, attrs)[0], torch.bool


def cast(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    return inputs[0].shape, attrs["dtype"]


def same(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    _axis(attrs["axis"])
    return inputs[0].shape, inputs[0].dtype


def reduced(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    axes = attrs["axes"]
    if not axes or tuple(sorted(set(axes))) != axes:
        raise ValueError(f"axes must be a sorted tuple of distinct negative ints, got {axes}")
    shape = list(inputs[0].shape)
    for axis in axes:
        shape[_axis(axis)] = 1
    return tuple(shape), inputs[0].dtype


def reduced_along_one(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    if len(attrs["axes"]) != 1:
        raise ValueError(f"one axis at a time is reduced by this op, got {attrs['axes']}")
    return reduced(inputs, attrs)


def linear(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    x, w = inputs
    if x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear contracts the last axes, got sizes {x.shape[-1]}, {w.shape[-1]}")
    outer = broadcast(x.shape[:-2], w.shape[:-2])
    return (*outer, x.shape[-2], w.shape[-2]), one_dtype(inputs)


def reshape(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    shape = tuple(attrs["shape"])
    if numel(shape) != numel(inputs[0].shape) or len(shape) != RANK:
        raise ValueError(f"cannot reshape {inputs[0].shape} to {shape}")
    return shape, inputs[0].dtype


def permute(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    order = attrs["order"]
    if sorted(order) != list(range(RANK)):
        raise ValueError(f"order must be a permutation of 0..{RANK - 1}, got {order}")
    return tuple(inputs[0].shape[i] for i in order), inputs[0].dtype


def diagonal(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """One row [.., 1, K] on the diagonal of [.., K, K]."""
    *outer, rows, size = inputs[0].shape
    if rows != 1:
        raise ValueError(f"diagonal takes one row, got {rows}")
    return (*outer, size, size), inputs[0].dtype


def expand(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    shape = tuple(attrs["shape"])
    if broadcast(inputs[0].shape, shape) != shape:
        raise ValueError(f"cannot expand {inputs[0].shape} to {shape}")
    return shape, inputs[0].dtype


def narrow(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    shape = list(inputs[0].shape)
    axis, start, length = _axis(attrs["axis"]), attrs["start"], attrs["length"]
    size = shape[axis]
    if isinstance(size, int):
        # whether a part that varies lies within a size that does not, nothing says
        known = isinstance(start, int) and isinstance(length, int)
        if not known or not 0 <= start <= start + length <= size:
            raise ValueError(f"slice {start}..{start + length} of a size of {size}")
    shape[axis] = length
    return tuple(shape), inputs[0].dtype


def cat(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    axis = _axis(attrs["axis"])
    shape = list(inputs[0].shape)
    total: Dim = 0
    for n in inputs:
        total = n.shape[axis] + total
        if n.shape[:axis] + n.shape[axis + 1 :] != tuple(shape[:axis] + shape[axis + 1 :]):
            raise ValueError(f"cat of shapes {[m.shape for m in inputs]} along axis {axis}")
    shape[axis] = total
    return tuple(shape), one_dtype(inputs)


def pooled(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    *outer, width = inputs[0].shape
    if not isinstance(width, int):
        raise ValueError("pooling needs a fixed width")
    span = width + 2 * attrs["padding"] - attrs["size"]
    if span < 0:
        raise ValueError(f"a pool of {attrs['size']} does not fit a width of {width}")
    return (*outer, span // attrs["stride"] + 1), inputs[0].dtype


def _axis(axis: int) -> int:
    if not -RANK <= axis < 0:
        raise ValueError(f"axes are negative, -{RANK}..-1, got {axis}")
    return axis + RANK


def embedding(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """Numbers of rows, of rank 4, and a matrix: of each number its row."""
    ids, table = inputs
    if ids.dtype not in (torch.int64, torch.int32) or ids.shape[0] != 1:
        raise ValueError(f"an embedding of {ids.dtype} of {ids.shape}")
    if any(d != 1 for d in table.shape[:-2]):
        raise ValueError(f"an embedding in a table of {table.shape}")
    return (*ids.shape[1:], table.shape[-1]), table.dtype
