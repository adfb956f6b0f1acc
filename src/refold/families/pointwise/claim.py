"""What pointwise kernels compute."""

from __future__ import annotations

from refold.families.family import Claim
from refold.families.view import View
from refold.families.walk import is_pointwise, level, sibling, space_of
from refold.ir import Node
from refold.plan.draft import Draft


def claim(node: Node, view: View) -> Claim | None:
    """A pointwise value begins a kernel where none over its rows reads what it reads."""
    if not is_pointwise(node):
        return None
    draft = sibling(node, node.shape, view) or Draft("pointwise", node.shape)
    return Claim(draft, (node,), draft.family)


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """More of its space, or one value a row; with a reduction of rows it is a kernel of rows."""
    space = space_of(node)
    if space is None or level(draft, node, space) is None:
        return None
    return "pointwise" if is_pointwise(node) else "rows"
