"""What attention takes: the search's charge, and the price of a kernel."""

from __future__ import annotations

from math import ceil, prod

from refold.devices import DeviceModel
from refold.families.prices import moved
from refold.ir import Node, hint
from refold.ir.attention import is_gradient, operands
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
# the same of gradients, whose kernels multiply seven times where five would do
_GRADIENT_RATE = 0.8 * 5 / 7
_SOFTMAX = 10.0  # multiply-adds that an exponential, its split and its sums are like
_TILE = 64  # queries, keys and features: what is beyond the last is multiplied, too
_LAUNCHED = 5e-6  # seconds that launches take anyway


def pays(node: Node, device: DeviceModel) -> bool:
    """Whether it is worth what is split for it, and what tiles multiply in vain."""
    if node.op.endswith("_sums"):
        return True  # beside attention
    # a gradient's first result stands for all of its products
    whole = _GRADIENT if is_gradient(node) else 1.0
    ours = whole * _busy(node, device) + _split(node) / device.bandwidth
    return ours < max(whole * attention_seconds(node, device), _LAUNCHED)


_GRADIENT = 2.5  # products of a gradient, in those that its first result counts


def _split(node: Node) -> float:
    """Bytes that are read and written to split what tiles are made of."""
    q, k, v, _ = operands(node)
    return 2 * sum(map(size_bytes, (q, q, k, v) if is_gradient(node) else (k, v)))


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """Each operand is read, and the result written."""
    if node.op not in ATTENTIONS:
        return None
    through = size_bytes(node) + sum(map(size_bytes, node.inputs))
    return Charge(device.called + max(_busy(node, device), through / device.bandwidth))


def price(group: Group, device: DeviceModel) -> Price:
    """Tiles are split by a kernel of their own, which writes as much as it reads."""
    node, *_ = group.nodes
    q, k, *_ = operands(node)
    scores = elements(q) / hint(q.shape[-1]) * hint(k.shape[-3])
    times, kernels = (2, 3) if is_gradient(node) else (1, 2)
    beside = NOT_OVERLAPPED * times * _SOFTMAX * scores / device.plain_flops
    busy = sum(_busy(n, device) for n in group.nodes)
    moves = moved(group) + _split(node)
    return Price.of(device, busy=busy, moved=moves, beside=beside, kernels=kernels)


def _busy(node: Node, device: DeviceModel) -> float:
    q, k, *_ = operands(node)
    sizes = hint(q.shape[-3]), hint(k.shape[-3]), hint(q.shape[-1])
    more = prod(ceil(n / _TILE) * _TILE for n in sizes) / max(prod(sizes), 1)
    rate = _GRADIENT_RATE if is_gradient(node) else _RATE
    return more * product_flops(node) / (device.product_flops * rate)
