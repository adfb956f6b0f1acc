"""What kernels of pooling take: the search's charge for a pooling, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.pooling.windows import is_pool, pool_of, taps, windows_of
from refold.families.prices import computed, moved
from refold.ir import Node
from refold.plan.plan import Group
from refold.price import NOT_OVERLAPPED, Charge, Parametric, Price, elements, size_bytes


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A pooling reads its image, in one pass with what is computed of its elements."""
    if not is_pool(node) or not windows_of(node):
        return None
    through = size_bytes(node.inputs[0]) + size_bytes(node)
    return Charge(device.called + through / device.bandwidth + _windows_seconds(node, device))


def price(group: Group, device: DeviceModel) -> Price:
    beside = computed(group, device) + _windows_seconds(pool_of(group.nodes), device)
    return Price.of(device, moved=moved(group), beside=beside)


def _windows_seconds(pool: Node, device: DeviceModel) -> float:
    """Of taking elements into windows, as far as it does not overlap with memory."""
    return NOT_OVERLAPPED * elements(pool) * taps(pool) / device.plain_flops
