"""What families share that walk over rows: which nodes fit a space, and which drafts share a walk.

A node's space is rows by width. It fits a draft's space where each operand is addressed in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from refold.families.view import View
from refold.ir import OPS, Dim, Kind, Node
from refold.plan.draft import Draft
from refold.plan.plan import Group, values_read
from refold.plan.space import Space

WALKS = frozenset({"rows", "pointwise"})  # the families whose kernels walk over rows


def reduces_row(node: Node) -> bool:
    """Is it a reduction along rows that kernels know?"""
    return (
        OPS[node.op].kind is Kind.REDUCE
        and node.row.reduction is not None
        and node["axes"] == (-1,)
    )


def is_pointwise(node: Node) -> bool:
    """Is it pointwise, with C++ for it?"""
    return OPS[node.op].kind is Kind.POINTWISE and OPS[node.op].cpp is not None


def space_of(node: Node) -> tuple[Dim, ...] | None:
    """The space of a walk that computes a node; None where none does."""
    if is_pointwise(node):
        return node.shape
    return node.inputs[0].shape if reduces_row(node) else None


def addressable(inputs: Iterable[Node], space: tuple[Dim, ...]) -> bool:
    return all(all(a in (1, b) for a, b in zip(i.shape, space, strict=True)) for i in inputs)


def level(draft: Draft, node: Node, space: tuple[Dim, ...]) -> str | None:
    """How a node, computed over `space`, fits a draft: "full", or "row" for one value a row."""
    row_shape = (*draft.dims[:-1], 1)
    reduces = OPS[node.op].kind is Kind.REDUCE
    if space == draft.dims and (draft.dims[-1] != 1 or not reduces):
        return "full" if addressable(values_read(node), draft.dims) else None
    if space != row_shape or reduces:
        return None
    inside = set(draft.nodes)
    # every operand must be one value a row
    fits = all(
        i.shape == row_shape if i in inside else addressable([i], row_shape)
        for i in values_read(node)
    )
    return "row" if fits else None


def sibling(node: Node, space: tuple[Dim, ...], view: View) -> Draft | None:
    """A draft over the same rows that reads a value that `node` reads: it is read once.

    Small vectors share one launch whatever they read.
    """
    vector = all(d == 1 for d in space[:-1]) and OPS[node.op].kind is not Kind.REDUCE
    wide = {i for i in values_read(node) if i.shape == space}
    cyclic = view.cyclic(node)
    readers = (view.owner.get(r) for i in wide for r in view.read_by(i))
    reading = {d for d in readers if d is not None}
    for draft in view.drafts if vector else sorted(reading, key=lambda d: d.number):
        if (
            draft.family in WALKS
            and draft.dims == tuple(space)
            and (vector or not wide.isdisjoint(draft.inputs()))
            and level(draft, node, space) is not None
            and not cyclic(draft)
        ):
            return draft
    return None


def made_at_hand(draft: Draft, view: View) -> list[Node]:
    """What a walk could compute itself where it reads it: all, if it has more rows than one."""
    return draft.inputs() if any(d != 1 for d in draft.dims[:-1]) else []


def overwrites(group: Group) -> list[Node]:
    """The operands whose memory a walk may write its one full-size result to: it reads a row for
    its reductions, then each element once more where it stores it."""
    if sum(o.shape == group.dims for o in group.outputs) != 1:
        return []
    space = Space(group)
    return [n for n in group.inputs if n.op != "scalar" and space.access(n) == "full"]
