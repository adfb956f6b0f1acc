"""What kernels of channels compute: reductions over one axis before the last, and what is pointwise
around them, of each element or of each place."""

from __future__ import annotations

from refold.families.family import Claim
from refold.families.view import View
from refold.families.walk import addressable, is_pointwise
from refold.ir import OPS, Dim, Kind, Node
from refold.plan.channels import channels_axis, of_places, whole_behind
from refold.plan.draft import Draft
from refold.plan.plan import values_read


def claim(node: Node, view: View) -> Claim | None:
    """A reduction over channels, in a kernel that reduces the same value or opens for it."""
    axis = channels_axis(node)
    if axis is None or OPS[node.op].reduction is None:
        return None
    x = node.inputs[0]
    if not _fits(x, x.shape, axis):
        return None
    cyclic = view.cyclic(node)
    for draft in view.drafts:
        if draft.family == "channels" and draft.dims == x.shape and axis_of(draft) == axis:
            shared = x in draft.nodes or x in draft.inputs()
            if shared and not cyclic(draft):
                return Claim(draft, (node,), "channels")
    return Claim(Draft("channels", x.shape), (node,), "channels")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """More of its elements, or one value a place that follows from what these hold."""
    axis, dims = axis_of(draft), draft.dims
    if is_pointwise(node):
        if node.shape == dims and all(_fits(i, dims, axis) for i in values_read(node)):
            return "channels"
        if node.shape == of_places(dims, axis):
            at_hand = all(i in draft.nodes or _is_one(i) for i in values_read(node))
            return "channels" if at_hand else None
        return None
    same = channels_axis(node) == axis and OPS[node.op].reduction is not None
    return "channels" if same and node.inputs[0].shape == dims else None


def made_at_hand(draft: Draft, view: View) -> list[Node]:
    """What a kernel could compute itself where it reads it."""
    axis = axis_of(draft)
    found = []
    for i in draft.inputs():
        maker = view.owner.get(i)
        read = [v for n in maker.nodes for v in values_read(n)] if maker is not None else []
        if all(_fits(v, draft.dims, axis) for v in read):
            found.append(i)
    return found


def axis_of(draft: Draft) -> int:
    """The axis that a draft reduces."""
    first = next(n for n in draft.nodes if OPS[n.op].kind is Kind.REDUCE)
    axis = channels_axis(first)
    assert axis is not None
    return axis


def _fits(value: Node, dims: tuple[Dim, ...], axis: int) -> bool:
    return addressable([value], dims) and whole_behind(value.shape, dims, axis)


def _is_one(value: Node) -> bool:
    return all(d == 1 for d in value.shape)
