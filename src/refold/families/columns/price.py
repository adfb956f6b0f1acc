"""What kernels of columns take: the search's charge for a reduction, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.prices import of_one_pass
from refold.ir import OPS, Kind, Node
from refold.price import Charge, Parametric, Pass, fused_seconds, size_bytes


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A reduction passes over its value once more, which is written before. Reductions of one value
    over the same axes share the pass."""
    if OPS[node.op].kind is not Kind.REDUCE:
        return None
    x = node.inputs[0]
    again = device.called + 2 * size_bytes(x) / device.bandwidth
    arithmetic = fused_seconds(node, device)
    return Charge(arithmetic, Pass(x, node["axes"], again))


price = of_one_pass
