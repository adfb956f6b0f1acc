"""What the prices of all families are made of: what a kernel moves, and what it computes in
passing."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.ir import Node
from refold.plan.plan import Group
from refold.price import Price, elements, fused_seconds


def moved(group: Group) -> float:
    """Bytes that a kernel reads, each operand once, and writes."""
    return sum(_lies(group, n) for n in (*group.inputs, *group.outputs) if n.op != "scalar")


def _lies(group: Group, node: Node) -> float:
    quantized = group.quantized is not None and node is group.quantized.value
    return elements(node) * (2 if quantized else group.stored(node).itemsize)


def computed(group: Group, device: DeviceModel) -> float:
    """Seconds of a kernel's plain arithmetic that do not overlap with its other work."""
    return sum(fused_seconds(n, device) for n in group.nodes if not n.row.is_contraction)


def of_one_pass(group: Group, device: DeviceModel) -> Price:
    """The price of a kernel that reads and writes each value once."""
    return Price.of(device, moved=moved(group), beside=computed(group, device))
