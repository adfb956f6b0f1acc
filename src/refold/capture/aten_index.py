"""ATen operators that pick elements by their numbers, where kernels say the same by comparing.

A loss of classes picks one logit of each row, and its gradient writes to one. PyTorch's own calls
for that read or write whole rows once more; a comparison is part of whatever kernel has the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refold.capture.registry import Out, handles, need, result
from refold.capture.values import Unsupported, Value, axis_of, operand
from refold.ir import OPS, Kind, Node, as_scalar, make, numel
from refold.ir.graph import is_parametric
from refold.ir.node import opaque
from refold.ir.shapes import RANK, broadcast, pad

# Below it float32 holds each integer, and rounds no larger one to one below it.
_EXACT = 2**24

Attrs = Mapping[str, Any]


def numbers_to(size: int, dtype: torch.dtype) -> Node:
    """0, 1, ... size - 1 as floating-point numbers, [size]."""
    one = as_scalar(1.0, dtype)
    ones = make("expand", one, shape=pad((size,)))
    return make("sub", make("cumsum", ones, axis=-1), one)


def picked(ids: Node, x: Node) -> Node:
    """The element of each row of x [..., C] whose number stands in ids [...], as [..., 1]. x holds
    more than 16 bits, and C is less than 2^24."""
    size = x.shape[-1]
    assert isinstance(size, int)
    numbers = numbers_to(size, x.dtype)
    # looked up, not cast: PyTorch then refuses a number that there is not
    own = make("embedding", ids, make("reshape", numbers, shape=pad((size, 1))))
    zero = as_scalar(0.0, x.dtype)
    return make("sum", make("where", make("eq", own, numbers), x, zero), axes=(-1,))


@handles("gather")
def _gather(out: Out, x: Value, dim: int, index: Value, **unused: Any) -> Value:
    size = x.shape[-1] if x.rank else 0
    need(1 < x.rank < RANK and axis_of(dim, x.rank) == -1, "another axis than the last")
    need(index.shape == (*x.shape[:-1], 1), "other than one element of each row")
    need(isinstance(size, int) and size < _EXACT, "how many elements there are")
    need(x.dtype == out[1] and x.dtype in (torch.float32, torch.float64), "the dtype")
    # of rows that lie in memory, PyTorch reads one element each, and no more
    need(OPS[x.node.op].kind is Kind.POINTWISE, "rows that lie in memory")
    need(index.dtype == torch.int64, "the dtype of numbers")
    ids = make("reshape", index.node, shape=pad(x.shape[:-1]))
    return result(picked(ids, x.node), out)


def _call(target: str, out: Out, *args: Any) -> Value:
    """A call of PyTorch. args: values, and what is not a value as it stands."""
    given = [a for a in args if isinstance(a, Value)]
    coded = iter(range(len(given)))
    made = opaque(
        tuple(v.node for v in given),
        out[0],
        out[1],
        target=target,
        args=tuple(("$", next(coded)) if isinstance(a, Value) else a for a in args),
        kwargs=(),
        shapes=tuple(v.shape for v in given),
        index=None,
        rank=len(out[0]),
    )
    return result(made, out)


@handles("_unsafe_masked_index_put_accumulate")
def _add_masked_rows(
    out: Out, x: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Value:
    """Rows added where a mask is, as an embedding's gradient is in PyTorch 2.13."""
    index = _rows_of(out, x, indices, values)
    need(mask.dtype == torch.bool, "the mask's dtype")
    # what is masked may be no number of a row, and adds nothing to the one it becomes
    rows = _call("aten.remainder.Scalar", (index.shape, index.dtype), index, x.shape[0])
    added = make("where", mask.node, values.node, as_scalar(0.0, values.dtype))
    need(added.shape == values.node.shape, "a mask that is spread further")
    return _add_rows(out, x, rows, added)


@handles("index_put", "_unsafe_index_put")
def _put_rows(
    out: Out, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """The same without a mask, as it is in PyTorch 2.11."""
    need(accumulate, "elements that are replaced")
    index = _rows_of(out, x, indices, values)
    # numbers below zero count from the end
    kept = index.shape, index.dtype
    below = _call("aten.lt.Scalar", (index.shape, torch.bool), index, 0)
    turned = _call("aten.add.Scalar", kept, index, x.shape[0])
    rows = _call("aten.where.self", kept, below, turned, index)
    return _add_rows(out, x, rows, values.node)


def _rows_of(out: Out, x: Value, indices: Sequence[Value | None], values: Value) -> Value:
    """The numbers of rows of x to which `values` are added, one row for each."""
    need(len(indices) == 1 and isinstance(indices[0], Value), "more than numbers of rows")
    (index,) = indices
    assert isinstance(index, Value)
    need(x.rank > 0 and index.rank > 0, "one number")
    need(values.shape == (*index.shape, *x.shape[1:]), "values that are spread")
    need(x.dtype == out[1] == values.dtype, "the dtype")
    need(x.dtype in (torch.float32, torch.float64), "sums in 16 bits")
    need(index.dtype == torch.int64, "a mask, or numbers that scatter_add does not take")
    return index


def _add_rows(out: Out, x: Value, rows: Value, added: Node) -> Value:
    """x with rows added to those of these numbers. On a GPU PyTorch's call for that sorts the
    numbers, and so does `index_add`: 1 ms for each of BERT's three tables. Inductor adds rows as
    they come, in no fixed order, and so does `scatter_add`, but where algorithms are to be
    deterministic."""
    count = numel(rows.shape)
    flat, column = (count, *x.shape[1:]), (count,) + (1,) * (x.rank - 1)
    places = make("expand", make("reshape", rows.node, shape=pad(column)), shape=pad(flat))
    one, several = Value(places, flat), Value(make("reshape", added, shape=pad(flat)), flat)
    return _call("aten.scatter_add.default", out, x, 0, one, several)


@handles("slice_scatter")
def _slice_scatter(
    out: Out,
    x: Value,
    part: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Value:
    """A part between rows of one number, as the gradient of a slice is."""
    number = x.node.inputs[0] if x.node.op == "expand" else x.node
    need(number.op == "scalar" and step == 1, "a part of other values")
    axis = axis_of(dim, x.rank)
    size, length = x.shape[axis], part.shape[axis]
    if not isinstance(size, int) or not isinstance(length, int):
        raise Unsupported("a size that varies")
    before = int(start or 0)
    before = max(before + size, 0) if before < 0 else before
    behind = size - before - length
    need(behind >= 0, "a part beyond the end")

    def rows(count: int) -> Node:
        shape = tuple(count if i == x.rank + axis else d for i, d in enumerate(x.shape))
        return make("expand", as_scalar(number["value"], out[1]), shape=pad(shape))

    made = operand(part, out[1])
    made = make("cat", rows(before), made, axis=axis) if before else made
    made = make("cat", made, rows(behind), axis=axis) if behind else made
    return result(made, out)


def compared(op: str, a: Value, b: Value, shape: tuple[Any, ...]) -> Node | None:
    """A comparison of integers with 0, 1, 2, ... in float32, which is exact: what is rounded lies
    beyond all of the numbers before and after. None where it is none.

    A gradient at one place of each row is such a comparison; kernels compute with float32 alone.
    """
    for i in range(2):
        numbers = _numbers((a, b)[i].node)
        other = (b, a)[i].node
        if numbers is None or is_parametric(other) or other.dtype not in (torch.int64, torch.int32):
            continue
        other = other.inputs[0] if other.op == "expand" else other
        sides = make("cast", other, dtype=torch.float32), numbers
        made = make(op, *(sides if i else sides[::-1]))
        return made if made.shape == pad(shape) == broadcast(*(s.shape for s in sides)) else None
    return None


def _numbers(node: Node) -> Node | None:
    """The same integers as float32, where they are 0, 1, 2, ... in some shape."""
    moves = []
    while node.op in ("reshape", "expand"):
        moves.append(node)
        (node,) = node.inputs
    if node.op != "aten" or node["target"] not in _COUNTING:
        return None
    (size,) = node["args"] if len(node["args"]) == 1 else (None,)
    named = dict(node["kwargs"])
    usual = named.get("start", 0) == 0 and named.get("step", 1) == 1
    if not usual or not isinstance(size, int) or not 0 < size < _EXACT:
        return None
    numbers = numbers_to(size, torch.float32)
    if numbers.shape != node.shape:
        return None
    for move in reversed(moves):
        numbers = make(move.op, numbers, **dict(move.attrs))
    return numbers


_COUNTING = ("prims.iota.default", "aten.arange.default")
