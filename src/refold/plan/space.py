"""How a kernel addresses its operands: the axes of its space that are one, and what each operand
is broadcast along."""

from __future__ import annotations

from collections.abc import Sequence

from refold.ir import OPS, Dim, Kind, Node, numel
from refold.ir.ops import CONVOLUTIONS
from refold.plan.channels import channels_axis
from refold.plan.layout import TRANSPOSED
from refold.plan.plan import Group, is_matrix_product


def is_reduction(node: Node) -> bool:
    """Whether a kernel reduces to get `node`; a product with one output feature is a reduction."""
    return OPS[node.op].kind is Kind.REDUCE or (node.op == "linear" and not is_matrix_product(node))


class Space:
    """The space of one kernel.

    dims: the group's, rank 5; of a kernel that is pointwise the trailing axes that each operand
    takes whole or not at all are one, so that rows are as wide as they can be; of a convolution
    all places are one axis, and of reductions over channels, and of images that lie in two orders.
    images: the convolution, if it is one. channels: the axis of the group's space that such
    reductions are over. places: of images whose channels are the last axis here, as of the group
    (`last`), their number; else 0. turned: operands that lie in the other order.
    """

    def __init__(self, group: Group) -> None:
        self.images = next((n for n in group.nodes if n.op in CONVOLUTIONS), None)
        self.channels = channels_of(group)
        self.places = group.images if group.last else 0
        self.turned = group.turned
        self.first = _first_merged(group)
        self.dims = self.shape(group.dims)
        self.row_shape = (*self.dims[:-1], 1)

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """A shape of the group's space, its merged axes being one."""
        if self.places:
            *others, channels = (shape[a] for a in TRANSPOSED[self.places])
            images, places = others[: -self.places], numel(others[-self.places :])
            return (*(1,) * (len(shape) - 2 - len(images)), *images, places, channels)
        before = shape[: self.first]
        return (*(1,) * (len(shape) - 1 - len(before)), *before, numel(shape[self.first :]))

    def access(self, node: Node) -> str:
        """How an operand is read: "scalar" (one element), "column" (one value a column), "full",
        "row" (one value a row), "channel" (one value a channel of a convolution), "turned", or
        "mixed" (broadcast along some of the row axes)."""
        if node in self.turned:
            return "turned"
        shape: Sequence[Dim] = self.shape(node.shape)
        if all(d == 1 for d in shape):
            return "scalar"
        if self.images is not None:
            one, of_channels = [d for d in shape if d != 1], shape[-1 if self.places else -2]
            if node is self.images.inputs[2] or (len(one) == 1 and of_channels == one[0]):
                return "channel"
        if shape[-1] == self.dims[-1] and all(d == 1 for d in shape[:-1]):
            return "column"
        if shape == self.dims:
            return "full"
        return "row" if shape == self.row_shape and self.channels is None else "mixed"


def lies_alike(node: Node, group: Group) -> bool:
    """Whether a kernel of images that lie in another order may read an operand: one of their shape,
    or one that lies in one order, whatever the kernel's is. One that is spread along some of the
    places' axes alone does not."""
    places = group.images
    behind = node.shape[-places:]
    if behind != group.dims[-places:] and any(d != 1 for d in behind):
        return False
    wide = [a for a in TRANSPOSED[places] if node.shape[a] != 1]
    return node.shape == group.dims or not group.last or wide == sorted(wide)


def channels_of(group: Group) -> int | None:
    """The axis over which a kernel reduces what it knows of each place; None of other kernels."""
    return next((a for n in group.reductions if (a := channels_axis(n)) is not None), None)


def _first_merged(group: Group) -> int:
    """The first of the axes that are one in a kernel: the last one, but of pointwise groups."""
    dims = group.dims
    first = len(dims) - 1
    if group.turned:
        return len(dims) - group.images
    if (axis := channels_of(group)) is not None:
        return len(dims) + axis + 1
    for n in group.nodes:
        if n.op in CONVOLUTIONS:
            return len(dims) - len(n["strides"])
    pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in group.nodes)
    if not pointwise or any(o.shape != dims for o in group.outputs):
        return first
    shapes = [n.shape for n in group.inputs]

    def whole(shape: tuple[Dim, ...], axis: int) -> bool:
        return shape[axis:] == dims[axis:] or all(d == 1 for d in shape[axis:])

    # all operands that are whole, or one number, are taken as one row: GroupKernel.flat
    while first > 1 and all(whole(s, first - 1) for s in shapes):
        first -= 1
    return first
