"""What attention takes: the search's charge, and the price of a kernel."""

from __future__ import annotations

from math import ceil, prod

from refold.devices import DeviceModel
from refold.families.prices import moved
from refold.ir import Node, hint
from refold.ir.ops import ATTENTIONS
from refold.plan.plan import Group
from refold.price import (
    NOT_OVERLAPPED,
    Charge,
    Parametric,
    Price,
    attention_seconds,
    elements,
    product_flops,
    size_bytes,
)

# of the rate at which the device multiplies large matrices: what softmax leaves of it
_RATE = 0.6
_SOFTMAX = 10.0  # multiply-adds that an exponential, its split and its sums are like
_TILE = 64  # queries, keys and features: what is beyond the last is multiplied, too
_LAUNCHED = 5e-6  # seconds that launches take anyway


def pays(node: Node, device: DeviceModel) -> bool:
    """Whether it is worth what is copied for it: kernels read operands that lie token after token,
    PyTorch's call as views have them."""
    copied = 2 * sum(size_bytes(i) for i in node.inputs[:3] if _is_apart(i))
    split = 2 * sum(map(size_bytes, node.inputs[1:3]))
    ours = _busy(node, device) + (copied + split) / device.bandwidth
    return ours < max(attention_seconds(node, device), _LAUNCHED)


def _is_apart(x: Node) -> bool:
    """Is it a view of what lies otherwise?"""
    while x.row.is_view and x.inputs:
        if x.op != "reshape":
            return True
        (x,) = x.inputs
    return False


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """Each operand is read, and the result written."""
    if node.op not in ATTENTIONS:
        return None
    through = size_bytes(node) + sum(map(size_bytes, node.inputs))
    return Charge(device.called + max(_busy(node, device), through / device.bandwidth))


def price(group: Group, device: DeviceModel) -> Price:
    """Keys and values are split by a kernel of their own, which writes as much as it reads, and
    read again."""
    (node,) = group.nodes
    split = 2 * sum(map(size_bytes, node.inputs[1:3]))
    softmax = _SOFTMAX * elements(node) / hint(node.shape[-1]) * hint(node.inputs[1].shape[-3])
    beside = NOT_OVERLAPPED * softmax / device.plain_flops
    busy = _busy(node, device)
    return Price.of(device, busy=busy, moved=moved(group) + split, beside=beside, kernels=2)


def _busy(node: Node, device: DeviceModel) -> float:
    *_, queries, _, features = map(hint, node.shape)
    keys = hint(node.inputs[1].shape[-3])
    sizes = queries, keys, features
    more = prod(ceil(n / _TILE) * _TILE for n in sizes) / max(prod(sizes), 1)
    return more * product_flops(node) / (device.product_flops * _RATE)
