"""What kernels of channels take: the search's charge for a reduction, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.prices import of_one_pass
from refold.ir import OPS, Kind, Node
from refold.plan.channels import channels_axis
from refold.price import Charge, Parametric, fused_seconds


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A reduction over channels is made in the kernel that makes their elements."""
    if OPS[node.op].kind is not Kind.REDUCE or channels_axis(node) is None:
        return None
    return Charge(fused_seconds(node, device))


price = of_one_pass
