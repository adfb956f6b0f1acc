"""ATen operators that move elements, and those that fill."""

from __future__ import annotations

from functools import reduce
from typing import Any

from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Number, Unsupported, Value, axis_of, operand, value
from refold.ir import as_scalar, make
from refold.ir.shapes import RANK, pad


@handles(
    "view",
    "reshape",
    "_unsafe_view",
    "unsqueeze",
    "squeeze",
    "flatten",
    "unflatten",
    "view_copy",
    "_reshape_alias",
    "squeeze_copy",
    "unsqueeze_copy",
)
def _reshape(out: Out, x: Value, *unused: Any) -> Value:
    return result(x.node, out)


def permuted(x: Value, order: list[int]) -> Value:
    rank = x.rank
    need(rank <= RANK, f"rank {rank}")
    lead = RANK - rank
    full = tuple(range(lead)) + tuple(lead + (d % rank) for d in order)
    shape = tuple(x.shape[d % rank] for d in order)
    if full == tuple(range(RANK)):
        return x
    return Value(make("permute", x.node, order=full), shape)


@handles("permute", "permute_copy")
def _permute(out: Out, x: Value, order: list[int]) -> Value:
    return permuted(x, list(order))


@handles("mT", "mH")
def _turned(out: Out, x: Value) -> Value:
    need(not x.dtype.is_complex, "a complex value")
    return permuted(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@handles("numpy_T")
def _reversed(out: Out, x: Value) -> Value:
    return permuted(x, list(reversed(range(x.rank))))


@handles("transpose", "t", "transpose_copy", "t_copy", "swapaxes")
def _transpose(out: Out, x: Value, a: int = 0, b: int = 1) -> Value:
    order = list(range(x.rank))
    if x.rank >= 2:
        order[a], order[b] = order[b], order[a]
    return permuted(x, order)


@handles("embedding")
def _embedding(out: Out, table: Value, ids: Value, *unused: Any) -> Value:
    need(table.rank == 2 and ids.rank < RANK, "ranks")
    return result(make("embedding", ids.node, table.node), out)


@handles("index_select")
def _index_select(out: Out, x: Value, dim: int, ids: Value) -> Value:
    need(x.rank == 2 and dim % 2 == 0 and ids.rank == 1, "other than rows of a matrix")
    return result(make("embedding", ids.node, x.node), out)


@handles("diag", "diag_embed")
def _diagonal(out: Out, x: Value, *where: int) -> Value:
    need(x.rank < RANK and len(out[0]) == x.rank + 1 and not any(where), "other diagonals")
    row = value(x.node, (*x.shape[:-1], 1, x.shape[-1]))
    return result(make("diagonal", row.node), out)


@handles("expand", "broadcast_to", "expand_as", "expand_copy")
def _expand(out: Out, x: Value, *unused: Any, **implicit: Any) -> Value:
    need(len(out[0]) <= RANK, "rank")
    if pad(out[0]) == x.node.shape:
        return Value(x.node, out[0])
    return Value(make("expand", x.node, shape=pad(out[0])), out[0])


@handles("broadcast_tensors")
def _broadcast_tensors(out: list[Out], tensors: list[Value]) -> list[Value]:
    pairs = zip(out, tensors, strict=True)
    return [v if o[0] == v.shape else _expand(o, v) for o, v in pairs]


@handles("slice", "narrow", "slice_copy")
def _slice(
    out: Out, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    need(step == 1, "a strided slice")
    axis = axis_of(dim, x.rank)
    size, length = x.node.shape[axis], out[0][axis]
    if size == length:
        return x
    first = start or 0
    if not (isinstance(length, int) and isinstance(first, int)):
        raise Unsupported("a slice of a size that varies")
    if first < 0:
        # where the size varies, torch.export has found it to be no smaller than what is kept
        first = max(first + size, 0) if isinstance(size, int) else size + first
    need(isinstance(size, int) or first == size - length, "a slice of a size that varies")
    return result(make("slice", x.node, axis=axis, start=first, length=length), out)


HANDLERS["narrow"] = lambda out, x, dim, start, length: _slice(out, x, dim, start)


@handles("select")
def _select(out: Out, x: Value, dim: int, index: int) -> Value:
    axis = axis_of(dim, x.rank)
    size = x.node.shape[axis]
    need(isinstance(index, int), "an index that varies")
    first = index if index >= 0 else size + index
    return result(make("slice", x.node, axis=axis, start=first, length=1), out)


@handles("split", "split_with_sizes", "chunk", "unbind")
def _split(out: list[Out], x: Value, *args: Any, **options: Any) -> list[Value]:
    dims = [a for a in args[1:] if isinstance(a, int)]
    same_rank = len(out[0][0]) == x.rank
    dim = dims[-1] if same_rank and dims else options.get("dim", 0)
    if not same_rank:  # unbind
        dim = args[0] if args else options.get("dim", 0)
    axis = axis_of(dim, x.rank)
    parts, start = [], 0
    for part in out:
        length = part[0][axis] if same_rank else 1
        need(isinstance(length, int), "a split of a size that varies")
        piece = make("slice", x.node, axis=axis, start=start, length=length)
        parts.append(result(piece, part))
        start += int(length)  # type: ignore[arg-type]
    return parts


@handles("cat", "concat")
def _cat(out: Out, parts: list[Value], dim: int = 0) -> Value:
    # by twos, as the rules have it; the plan joins all of them at once again
    axis = axis_of(dim, len(out[0]))
    if len(out[0]) > 1:  # a tensor of shape [0] goes with any
        parts = [p for p in parts if p.shape != (0,)]
    nodes = [operand(p, out[1]) for p in parts]
    return result(reduce(lambda a, b: make("cat", a, b, axis=axis), nodes), out)


@handles("stack")
def _stack(out: Out, parts: list[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, len(out[0]))
    one = tuple(1 if i == len(out[0]) + axis else d for i, d in enumerate(out[0]))
    return _cat(out, [value(p.node, one) for p in parts], axis)


def _filled(number: Number, out: Out) -> Value:
    node = as_scalar(number, out[1])
    return Value(make("expand", node, shape=pad(out[0])) if out[0] else node, out[0])


HANDLERS["full"] = HANDLERS["full_like"] = lambda out, x, fill, **kw: _filled(fill, out)
HANDLERS["zeros"] = HANDLERS["zeros_like"] = lambda out, *a, **kw: _filled(0, out)
HANDLERS["ones"] = HANDLERS["ones_like"] = lambda out, *a, **kw: _filled(1, out)
HANDLERS["new_zeros"] = lambda out, x, size, **kw: _filled(0, out)
HANDLERS["new_ones"] = lambda out, x, size, **kw: _filled(1, out)
HANDLERS["new_full"] = lambda out, x, size, fill, **kw: _filled(fill, out)
HANDLERS["scalar_tensor"] = lambda out, fill, **kw: _filled(fill, out)
