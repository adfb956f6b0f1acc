"""What a kernel of a product computes: the product, its epilogue, and reductions of the result.

The epilogue grows over pointwise readers up to the one value that others read. That value is
stored, reduced along rows, or reduced down columns.
"""

from __future__ import annotations

import torch

from refold.families.epilogue import epilogue
from refold.families.family import Claim
from refold.families.view import View
from refold.families.walk import level, reduces_row, space_of
from refold.ir import OPS, Kind, Node, hint, numel
from refold.ir.shapes import RANK
from refold.plan.draft import Draft
from refold.plan.memory import is_widening, source
from refold.plan.plan import exchanges, is_batch, last_full, leading, values_read
from refold.schedule import is_small


def claim(node: Node, view: View) -> Claim | None:
    """A product of more than one feature, if the device has kernels for its operands."""
    if node.op != "linear":
        return None
    x, w = node.inputs
    if any(d != 1 for d in w.shape[:-2]) and not _is_batch(x, w, view):
        return None  # PyTorch's
    if w.shape[-2] == 1:
        return None
    folded = view.parametric[source(w)] and bool(source(w).inputs)
    if not view.device.device.products(view.memory(x), view.memory(w), folded):
        return None
    draft = Draft("matmul", node.shape, transposed=_transposed(x, w, view))
    return Claim(draft, tuple(epilogue(node, view)), "matmul")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """The epilogue is closed: reductions of its value, and values of one element a row that follow
    from them."""
    if _joins_rows(draft, node, view) or _reduces_columns(draft, node):
        return "matmul"
    return None


def read_by_epilogue(draft: Draft, view: View) -> list[Node]:
    """What the epilogue reads for each element of the result, and could compute where it does: the
    derivative of an activation, above all, which a gradient is multiplied by."""
    if is_batch(draft.nodes):
        return []
    inside = set(draft.nodes)
    epilogue = [n for n in draft.nodes if OPS[n.op].kind is Kind.POINTWISE]
    values = dict.fromkeys(i for n in epilogue for i in values_read(n))
    return [i for i in values if i not in inside and i.shape == draft.dims]


def _joins_rows(draft: Draft, node: Node, view: View) -> bool:
    space = space_of(node)
    if space is None:
        return False
    found = level(draft, node, space)
    if found != "full":
        return found == "row"
    # what a row reduces to is known only when the row is complete
    value = _value(draft)
    return (
        reduces_row(node)
        and source(node.inputs[0]) is value
        and not is_batch(draft.nodes)
        and not _waits(value, node, view)
    )


def _reduces_columns(draft: Draft, node: Node) -> bool:
    """Does a node reduce whole columns of a product's value?"""
    return (
        OPS[node.op].kind is Kind.REDUCE
        and node.row.reduction is not None
        and leading(node["axes"], node.inputs[0].shape)
        and all(d == 1 for d in node.shape[:-1])
        and source(node.inputs[0]) is _value(draft)
        and not is_batch(draft.nodes)
    )


def _value(draft: Draft) -> Node:
    return last_full(draft.nodes, draft.dims)


def _waits(value: Node, reduction: Node, view: View) -> bool:
    """Is a product's value read once more, by rows that need what it is reduced to?

    Then the kernel of those rows reduces them, too, where it holds them: a product that does
    takes a turn for each of its tiles, and the tensor cores wait.
    """
    if not view.device.device.holds_rows:
        return False
    return any(
        r.shape == value.shape
        and OPS[r.op].kind is Kind.POINTWISE
        and view.follows(r, [reduction], reduction)
        for r in view.read_by(value)
    )


def _is_batch(x: Node, w: Node, view: View) -> bool:
    """Is it a batch of products that kernels compute, each with a weight of its own?"""
    batches_pay = view.device.batches
    if batches_pay is None or {view.memory(x), view.memory(w)} != {torch.float32}:
        return False
    last = max(a for a in range(-RANK, -2) if w.shape[a] != 1)
    if x.shape[: last + 1] != w.shape[: last + 1]:
        return False
    counts = numel(w.shape[:-2]), numel(x.shape[:-1]), w.shape[-2], x.shape[-1]
    batches, rows, cols, depth = map(hint, counts)
    as_it_is = depth % 4 == 0 and not view.parametric[x] and not exchanges(x)
    return batches_pay(batches, rows, cols, depth, as_it_is)


def _transposed(x: Node, w: Node, view: View) -> tuple[Node, ...]:
    """The sides that the kernel reads from where they lie the other way round."""
    sizes = numel(x.shape[:-1]), w.shape[-2], x.shape[-1]
    if not view.device.device.turns or is_small(*map(hint, sizes)):
        return ()
    sides = [
        i
        for i in (x, w)
        if exchanges(i)
        and not view.parametric[i]
        and not is_widening(i.inputs[0])
        and view.memory(i.inputs[0]) == torch.float32
        # what has one matrix for each product
        and numel(i.shape[:-2]) == numel(w.shape[:-2])
    ]
    bases = [i.inputs[0] if i in sides else source(i) for i in (x, w)]
    return () if bases[0] is bases[1] else tuple(sides)
