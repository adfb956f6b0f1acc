"""What kernels of rows compute: reductions along rows, and what is pointwise around them."""

from __future__ import annotations

from refold.families.family import Claim
from refold.families.view import View
from refold.families.walk import WALKS, level, reduces_row, sibling, space_of
from refold.ir import Node
from refold.plan.draft import Draft
from refold.plan.plan import values_read


def claim(node: Node, view: View) -> Claim | None:
    """A reduction along rows, or a product of one output feature: it reduces x * w along rows."""
    space = node.inputs[0].shape if node.inputs else ()
    if reduces_row(node):
        draft = sibling(node, space, view)
    elif node.op == "linear" and all(d == 1 for d in node.inputs[1].shape[:-1]):
        draft = sibling(node, space, view) or _meeting(node, view)
    else:
        return None
    return Claim(draft or Draft("rows", space), (node,), "rows")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """More of its space, or one value a row. A product reads rows that are there."""
    space = space_of(node)
    return "rows" if space is not None and level(draft, node, space) is not None else None


def _meeting(node: Node, view: View) -> Draft | None:
    """A draft over rows as wide whose results meet those of a product of one feature in a value of
    one element a row: one launch then computes both."""
    space = node.inputs[0].shape
    met, seen, waiting = dict[Draft, None](), set[Node](), list(view.read_by(node))
    while waiting:
        r = waiting.pop(0)
        if r not in seen and r.shape == node.shape and view.is_open_pointwise(r):
            owners = (view.owner.get(i) for i in values_read(r))
            met.update(dict.fromkeys(d for d in owners if d is not None))
            waiting += view.read_by(r)
        seen.add(r)
    cyclic = view.cyclic(node)
    alike = (d for d in met if d.family in WALKS and d.dims == space)
    fitting = (d for d in alike if level(d, node, space) is not None)
    return next((d for d in fitting if not cyclic(d)), None)
