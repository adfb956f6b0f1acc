"""Which means and variances have to be exact where all values of a row are equal.

A mean's last digit is noise beside everything but what is centred by it; of equal values nothing
but noise is left then. It does no harm where something positive is added before a division (eps).
Where nothing is added it decides: the deviation of equal values is 0, so that a quotient is
infinite or no number; with a last digit in it noise is divided by noise, and numbers come out.
"""

from __future__ import annotations

from functools import cache

import torch

from refold.ir import OPS, Graph, Kind, Node
from refold.ir.facts import bounds
from refold.ir.graph import taken_of
from refold.ir.node import Attr

_ALWAYS = -1  # every bit: the number zero


def exact_spreads(graph: Graph) -> frozenset[Node]:
    """Means and variances of which a row of equal values makes a zero that something is divided
    by, or whose logarithm is taken; and the means beside such variances.

    Zeros are followed: a bit for each mean and variance that, if all that it is taken of is equal,
    makes a value zero.
    """
    nodes = graph.nodes()
    bits = {n: 1 << i for i, n in enumerate(n for n in nodes if n.op in ("mean", "var"))}
    if not bits:
        return frozenset()
    zero: dict[Node, int] = {}
    needed = 0
    for node in nodes:
        inner = [zero[i] for i in node.inputs]
        if any(inner) and node.kind is Kind.POINTWISE and node.is_float:
            for i in _at_zero(node.op, _dtypes(node), node.attrs)[1]:
                if bounds(node.inputs[i])[0] <= 0.0:
                    needed |= max(inner[i], 0)
        zero[node] = _zero(node, bits, inner)
    exact = {n for n, bit in bits.items() if needed & bit}
    spread = {taken_of(n) for n in exact if n.op == "var"}
    return frozenset(exact | {n for n in bits if n.op == "mean" and taken_of(n) in spread})


def _zero(node: Node, bits: dict[Node, int], inner: list[int]) -> int:
    """The means and variances of equal values that make all of this value zero."""
    if node.op == "scalar":
        return _ALWAYS if node["value"] == 0 else 0
    if node.op == "var":
        return bits[node] | inner[0]
    centred = node.op == "sub" and node.inputs[1].op == "mean"
    if centred and node.inputs[1].inputs[0] is node.inputs[0]:
        return bits[node.inputs[1]] | (inner[0] & inner[1])
    if not any(inner) or not node.is_float:
        return 0
    if node.kind is Kind.MOVE:
        return inner[0] if len(inner) == 1 else 0
    if node.kind is Kind.REDUCE:
        return inner[0] if _sums_to_zero(node.op) else 0
    if node.kind is not Kind.POINTWISE:
        return 0
    alone, _, together = _at_zero(node.op, _dtypes(node), node.attrs)
    found = 0
    for i in alone:
        found |= inner[i]
    if together:
        every = _ALWAYS
        for bit in inner:
            every &= bit
        found |= every
    return found


def _dtypes(node: Node) -> tuple[torch.dtype, ...]:
    return tuple(i.dtype for i in node.inputs)


@cache
def _at_zero(
    op: str, dtypes: tuple[torch.dtype, ...], attrs: tuple[tuple[str, Attr], ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Operands that make an op's result zero, and those that make it infinite or no number, where
    they are zero and the others one; and whether it is zero where all are. dtypes: of the operands.
    """

    def run(values: list[int]) -> float:
        given = (torch.tensor(v, dtype=d) for v, d in zip(values, dtypes, strict=True))
        return float(OPS[op].run(*given, **dict(attrs)))

    places = range(len(dtypes))
    results = [run([int(k != i) for k in places]) for i in places]
    zero = tuple(i for i, r in enumerate(results) if r == 0.0)
    poles = tuple(i for i, r in enumerate(results) if r - r != 0.0)
    return zero, poles, run([0] * len(dtypes)) == 0.0


@cache
def _sums_to_zero(op: str) -> bool:
    """Does an op reduce zeros to zero?"""
    row = OPS[op]
    more = {name: 0 for name in row.attrs if name != "axes"}
    return float(row.run(torch.zeros(1, 1, 1, 1, 2), axes=(-1,), **more)) == 0.0
