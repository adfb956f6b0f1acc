"""Values while a graph is read: a node with its true shape, and helpers that keep both in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.ir import Dim, Node, Sym, as_scalar, make
from refold.ir.shapes import RANK, pad

Axis = tuple[int, int]  # a dimension of a tensor, as (tensor, dimension)
Axes = frozenset[Axis]
Equal = tuple[tuple[Axis, Axis], ...]


@dataclass(frozen=True)
class Bound:
    """Sizes that do not vary by themselves.

    fixed: the dimensions whose sizes are the example's; None for all. equal: pairs of dimensions
    whose sizes are the same ones.
    """

    fixed: Axes | None = frozenset()
    equal: Equal = ()


FREE = Bound()


class CaptureError(Exception):
    """The module cannot be captured; the text says what stands in the way.

    reads_mode: whether it may be otherwise in the other mode. once: whether forward sets an
    attribute that it has read before and that is no tensor, at each call or at the first one alone.
    """

    reads_mode = True
    once = False


class GoesOn(CaptureError):
    """Forward takes from something that no call gives back, as an iterator: whoever runs it to see
    what it does changes what it does next."""


VALUES = (
    "forward needs a tensor's values as Python numbers (it branches on them, or computes with what"
    " .item() or float() gives)"
)


class SizeError(CaptureError):
    """Sizes stand in the way, which may be fixed.

    expr: the sympy expression of sizes that does, or the dimensions, as (tensor, dimension).
    equal: pairs of dimensions that may vary if their sizes are the same ones.
    """

    def __init__(self, text: str, expr: Any = None, equal: Equal = ()) -> None:
        super().__init__(text)
        self.expr, self.equal = expr, equal


class Unsupported(Exception):
    """This call is not expressible over the op table; it stays an opaque call of PyTorch."""


@dataclass(frozen=True)
class Value:
    """A tensor while reading: `node` is padded to rank 5, `shape` is the true shape."""

    node: Node
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.node.dtype


@dataclass(frozen=True)
class Ratio:
    """A number that is one size over another, as Python divides them."""

    top: int | float | Sym
    bottom: int | float | Sym


Number = bool | int | float | Sym


def value(node: Node, shape: Sequence[Dim]) -> Value:
    """`node` seen with the true shape `shape`, through a reshape where the padded shapes differ."""
    true = tuple(shape)
    if len(true) > RANK:
        raise Unsupported(f"rank {len(true)}")
    padded = pad(true)
    if node.shape != padded:
        try:
            node = make("reshape", node, shape=padded)
        except ValueError as error:
            raise Unsupported(str(error)) from error
    return Value(node, true)


def cast(v: Value, dtype: torch.dtype) -> Value:
    if v.dtype == dtype:
        return v
    if v.dtype.is_complex and not dtype.is_complex:
        raise Unsupported("a complex value")  # its imaginary part would be lost
    return Value(make("cast", v.node, dtype=dtype), v.shape)


def operand(v: Value | Number | Ratio, dtype: torch.dtype) -> Node:
    """A tensor or a Python number as a node of `dtype`."""
    if isinstance(v, Value):
        if v.rank > RANK:
            raise Unsupported(f"rank {v.rank}")
        return cast(v, dtype).node
    if isinstance(v, (bool, int, float, Sym)):
        return as_scalar(v, dtype)
    if isinstance(v, Ratio) and dtype.is_floating_point:
        return make("div", as_scalar(v.top, dtype), as_scalar(v.bottom, dtype))
    raise Unsupported(f"operand {type(v).__name__}")


def axis_of(dim: int, rank: int) -> int:
    """A dimension number of a value of that rank, as a negative axis."""
    if rank == 0:
        return -1
    return dim - rank if dim >= 0 else dim


def axes_of(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Dimension numbers (None or empty: all) as sorted negative axes."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        dims = range(rank)
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted({axis_of(d, rank) for d in dims})) or (-1,)
