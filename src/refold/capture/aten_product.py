"""ATen's matrix products, as contractions over the last axis of both sides."""

from __future__ import annotations

from typing import Any

from refold.capture.aten_move import permuted
from refold.capture.registry import Out, handles, need, result
from refold.capture.values import Number, Value, axes_of, value
from refold.ir import Dim, Node, as_scalar, make
from refold.ir.shapes import RANK


def swapped(node: Node) -> Node:
    """The last two axes exchanged."""
    return make("permute", node, order=(*range(RANK - 2), RANK - 1, RANK - 2))


def _one_dtype(out: Out, *values: Value) -> None:
    need(all(v.dtype == out[1] for v in values), "mixed dtypes")


@handles("linear")
def _linear(out: Out, x: Value, w: Value, bias: Value | None = None) -> Value:
    _one_dtype(out, x, w)
    need(w.rank == 2, "a weight of rank 1")
    node = make("linear", x.node, w.node)
    if bias is not None:
        node = make("add", node, bias.node)
    return result(node, out)


@handles("matmul", "mm", "bmm", "mv", "dot")
def _matmul(out: Out, a: Value, b: Value) -> Value:
    _one_dtype(out, a, b)
    if b.rank == 1:
        return result(make("linear", a.node, b.node), out)
    if a.rank == 1:
        a = value(a.node, (1, a.shape[0]))
    return result(make("linear", a.node, swapped(b.node)), out)


@handles("addmm", "baddbmm", "addmv")
def _addmm(
    out: Out, bias: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = _matmul(out, a, b).node
    if alpha != 1:
        product = make("mul", product, as_scalar(alpha, out[1]))
    need(beta != 0, "beta 0 ignores NaN")
    start = bias.node if beta == 1 else make("mul", bias.node, as_scalar(beta, out[1]))
    return result(make("add", product, start), out)


@handles("einsum")
def _einsum(out: Out, equation: str, operands: list[Value], path: Any = None) -> Value:
    need(len(operands) == 2 and "..." not in equation, "einsum form")
    left, _, right = equation.replace(" ", "").partition("->")
    names = left.split(",")
    need("->" in equation, "implicit einsum")
    need(all(len(set(n)) == len(n) for n in (*names, right)), "a diagonal")
    a, b = operands
    _one_dtype(out, a, b)
    sizes: dict[str, Dim] = {}
    for letters, v in zip(names, operands, strict=True):
        for letter, size in zip(letters, v.shape, strict=True):
            need(sizes.setdefault(letter, size) == size, "broadcasting einsum")

    def summed(v: Value, letters: str, others: str) -> tuple[Value, str]:
        alone = [i for i, c in enumerate(letters) if c not in others]
        if not alone:
            return v, letters
        kept = "".join(c for c in letters if c in others)
        node = make("sum", v.node, axes=axes_of(alone, v.rank))
        return value(node, [sizes[c] for c in kept]), kept

    a, la = summed(a, names[0], names[1] + right)
    b, lb = summed(b, names[1], names[0] + right)
    batch = [c for c in la if c in lb and c in right]
    inner = [c for c in la if c in lb and c not in right]
    rows = [c for c in la if c not in lb]
    columns = [c for c in lb if c not in la]
    need(len(batch) <= 2, "einsum batch")

    def arranged(v: Value, letters: str, order: list[list[str]]) -> Node:
        flat = [c for group in order for c in group]
        moved = permuted(v, [letters.index(c) for c in flat])
        shape: list[Dim] = [sizes[c] for c in batch]
        for group in order[1:]:
            size: Dim = 1
            for c in group:
                size = sizes[c] * size
            shape.append(size)
        return value(moved.node, shape).node

    product = make(
        "linear", arranged(a, la, [batch, rows, inner]), arranged(b, lb, [batch, columns, inner])
    )
    natural = batch + rows + columns
    shaped = value(product, [sizes[c] for c in natural])
    return result(permuted(shaped, [natural.index(c) for c in right]).node, out)
