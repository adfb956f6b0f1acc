"""What Inductor's code for a graph should take, by the same prices as ours.

Inductor fuses what is pointwise and what reduces, as our kernels do; its products are the
library's, whose results are written, and read by the pass that follows.
"""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families import BY_NAME
from refold.ir import Kind, Node
from refold.ir.ops import ATTENTIONS
from refold.plan import Group, Plan
from refold.planner.calls import CallPrices
from refold.price import Price, attention_seconds, product_flops, size_bytes


def rival_seconds(plan: Plan, device: DeviceModel) -> float:
    """Seconds of Inductor's code, of the plan of the graph as it was captured."""
    calls = CallPrices(plan, device)
    total = 0.0
    for step in plan.steps:
        if isinstance(step, Group) and step.is_product:
            total += _product(step, plan, device)
        elif isinstance(step, Group) and step.nodes[-1].op in ATTENTIONS:
            moved = sum(map(size_bytes, (*step.outputs, *step.inputs)))
            busy = sum(attention_seconds(n, device) for n in step.nodes)
            total += Price.of(device, busy=busy, moved=moved).seconds
        elif isinstance(step, Group):
            total += BY_NAME[step.family].price(step, device).seconds
        elif step.node in plan.buffers.places:
            total += max(calls.price(step).seconds - device.call, 0.0)
    return total


def _product(group: Group, plan: Plan, device: DeviceModel) -> float:
    """The library's call, and a pass for what our kernel computes of its result but a bias."""
    products = [n for n in group.nodes if n.row.is_contraction]
    flops = sum(product_flops(n) for n in products)
    moved = sum(size_bytes(i) for n in products for i in n.inputs)
    moved += sum(size_bytes(n) for n in products)
    busy = flops / (device.product_flops * device.library)
    seconds = Price.of(device, busy=busy, moved=moved).seconds
    more = [n for n in group.nodes if n not in products and n.kind is not Kind.MOVE]
    if all(n.op == "add" and _adds_a_row(n) for n in more) and len(more) < 2:
        return seconds
    read = sum(size_bytes(i) for i in group.inputs) + sum(size_bytes(n) for n in products)
    read -= sum(size_bytes(i) for n in products for i in n.inputs)
    written = sum(size_bytes(o) for o in group.outputs)
    return seconds + Price.of(device, moved=max(read, 0.0) + written).seconds


def _adds_a_row(node: Node) -> bool:
    """Is one side of a sum the same for every row, as a bias is?"""
    return any(all(d == 1 for d in i.shape[:-1]) for i in node.inputs)
