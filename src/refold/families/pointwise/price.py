"""What pointwise kernels take: the search's charge for a value, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.prices import of_one_pass
from refold.ir import OPS, Kind, Node
from refold.plan.plan import Group
from refold.price import Charge, Parametric, Price, fused_seconds


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A pointwise value is computed in the kernel that made its input, or that reads it."""
    if OPS[node.op].kind is not Kind.POINTWISE:
        return None
    return Charge(fused_seconds(node, device))


# how many times as long a kernel takes that reads images with their channels last: taken, not timed
TURNED = 1.25


def price(group: Group, device: DeviceModel) -> Price:
    found = of_one_pass(group, device)
    if not group.turned:
        return found
    return found.then(Price((TURNED - 1) * found.moved / device.bandwidth))
