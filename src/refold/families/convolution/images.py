"""Which images a convolution's kernel may read and store with their channels last."""

from __future__ import annotations

from refold.flat import FLAT
from refold.ir import OPS, Kind
from refold.plan.convolution import ConvolutionKernel
from refold.plan.plan import Group
from refold.plan.space import lies_alike


def lays_out(group: Group) -> bool:
    """Is it by one long row of places, whose kernel reads images of either order, and stores one
    value?"""
    kernel, conv = group.kernel, group.product
    if not isinstance(kernel, ConvolutionKernel) or kernel.schedule.kernels is not FLAT:
        return False
    others = [n for n in group.nodes if n is not conv]
    if any(OPS[n.op].kind is not Kind.POINTWISE for n in others) or group.counters:
        return False
    if group.quantized is not None or [o.shape for o in group.outputs] != [group.dims]:
        return False
    image, _ = group.sides
    read = {i for n in others for i in n.inputs}
    if image in read and image.shape != group.dims:
        return False
    others_read = (n for n in group.inputs if n not in conv.inputs or n in read)
    return all(lies_alike(n, group) for n in others_read)
