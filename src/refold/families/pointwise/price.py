"""What pointwise kernels take: the search's charge for a value, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.prices import of_one_pass
from refold.ir import OPS, Kind, Node
from refold.price import Charge, Parametric, fused_seconds


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A pointwise value is computed in the kernel that made its input, or that reads it."""
    if OPS[node.op].kind is not Kind.POINTWISE:
        return None
    return Charge(fused_seconds(node, device))


price = of_one_pass
