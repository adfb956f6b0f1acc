"""Which values of products may be quantized to 16 bits until the pass that normalises them.

A product stores its values before the moments of their columns are known, and another kernel reads
them to normalise them. Where they are more than the device's cache holds, both are at the rate of
its memory. Where operands have no more than TF32's ten bits, 16-bit integers by blocks of rows
(kernels/cuda/quantized.cuh) lose a ninth of what the product has lost before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from refold.ir import OPS, Graph, Kind, hint, numel
from refold.plan.plan import ExternCall, Group, Quantized, Step, column_shape, reads


def with_quantized(graph: Graph, steps: Sequence[Step], least: int) -> tuple[Step, ...]:
    """The steps, with `Group.quantized` of those products and of what reads them.

    least: of how many bytes a value is, at the sizes of the capture, before it is quantized.
    """
    found: dict[int, Quantized] = {}
    groups = {i: s for i, s in enumerate(steps) if isinstance(s, Group)}
    called = {n for s in steps if isinstance(s, ExternCall) for n in reads(s.node)}
    kept = {*graph.roots(), *called}
    for i, product in groups.items():
        if not _may_be(product) or product.value in kept or 4 * _elements(product) < least:
            continue
        readers = [j for j, g in groups.items() if product.value in g.inputs]
        free = all(j not in found and _normalises(groups[j], product) for j in readers)
        if readers and free:
            rows = -(-least // (4 * hint(product.width)))
            found.update(dict.fromkeys((i, *readers), Quantized(product.value, rows)))
    return tuple(
        replace(s, quantized=found[i]) if isinstance(s, Group) and i in found else s
        for i, s in enumerate(steps)
    )


def _elements(group: Group) -> int:
    return hint(numel(group.dims))


def _may_be(group: Group) -> bool:
    """Is it a product that takes the moments of the columns of what it stores in float32?"""
    if not group.is_product or group.batches != 1 or group.real != torch.float32:
        return False
    value, vector = group.value, column_shape(group.dims)
    moments = any(n.op == "var" and n.inputs == (value,) for n in group.reductions)
    whole = all(n.shape == vector for n in group.reductions) and vector != group.dims
    full = [n for n in group.outputs if n.shape == group.dims]
    stored = full == [value] and group.stored(value) == torch.float32
    return moments and whole and stored and group.stored(group.sides[0]) == torch.float32


def _normalises(group: Group, product: Group) -> bool:
    """Is it a pointwise kernel that normalises the product's values?

    A block of rows of a column that holds an infinity is stored by a centre that is not finite. So
    the variance of the columns, NaN then, has to enter all that is made of the values.
    """
    value, pointwise = product.value, all(OPS[n.op].kind is Kind.POINTWISE for n in group.nodes)
    if group.dims != product.dims or not pointwise:
        return False
    moments = {n for n in product.reductions if n.op in ("mean", "var") and n.inputs == (value,)}
    scaled = {n for n in moments if n.op == "var"}
    for n in (*product.nodes, *group.nodes):
        moments |= {n} if any(i in moments for i in n.inputs) else set()
        scaled |= {n} if any(i in scaled for i in n.inputs) else set()
    readers = [n for n in group.nodes if value in n.inputs]
    return all(n.row.is_arithmetic and n in moments for n in readers) and all(
        n in scaled for n in group.outputs
    )
