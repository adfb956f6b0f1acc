"""What no family's kernels compute: calls of PyTorch, views, and folded parameters.

A charge takes it that a view costs nothing and that a computed value is written for a call, and
read by it. A price knows how each value lies: what is a view of what kernels made, and what
PyTorch copies because it lies in another order.
"""

from __future__ import annotations

from typing import Any

import torch

from refold.devices import DeviceModel
from refold.ir import OPS, Kind, Node, Output, Sym, hint
from refold.ir.graph import is_parametric, topological
from refold.ir.ops import ATTENTIONS, CONVOLUTIONS
from refold.ir.rounded import value_of
from refold.ir.shapes import RANK
from refold.plan.buffers import ViewOf
from refold.plan.layout import turned_forth
from refold.plan.plan import ExternCall, Plan, reads
from refold.planner.attention_calls import call_flops
from refold.planner.conversions import converted, is_converted, laid_out
from refold.price import (
    PER_OP,
    Charge,
    Parametric,
    Price,
    attention_seconds,
    called_seconds,
    elements,
    fused_seconds,
    is_folded,
    product_charge,
    product_flops,
    product_seconds,
    size_bytes,
)

# A fold is computed anew when a parameter changes: counted as once in so many calls, so that a
# folded copy of a large weight has to save more than an op or two, and the smaller of two is taken.
CALLS_PER_FOLD = 100


def fold_seconds(node: Node, device: DeviceModel) -> float:
    """A folded parameter's share of one call: reading its sources, computing it, and the price of
    the memory that it is kept in."""
    inner = topological([node])
    moved = size_bytes(node) + sum(size_bytes(n) for n in inner if not n.inputs)
    flops = sum(product_flops(n) for n in inner if n.op == "linear")
    work = moved / device.bandwidth + flops / device.product_flops
    return PER_OP + work / CALLS_PER_FOLD + device.hold * size_bytes(node)


# --- charges --------------------------------------------------------------------------------------
def charge_of(node: Node, device: DeviceModel, parametric: Parametric) -> Charge:
    """Of what no family charges for."""
    return Charge(_charge(node, device, parametric))


def _charge(node: Node, device: DeviceModel, parametric: Parametric) -> float:
    if node.op == "linear":  # a batch: its result is written, and read again
        more = device.called + 2 * size_bytes(node) / device.bandwidth
        return product_charge(node, device, parametric) + more
    if node.op in CONVOLUTIONS:
        # what adds its bias is fused with what follows
        busy, read = product_seconds(node, device), sum(size_bytes(i) for i in node.inputs)
        written = size_bytes(node) / device.bandwidth
        return max(busy, read / device.bandwidth) + device.called + written
    if node.op in ATTENTIONS:
        moved = size_bytes(node) + sum(map(size_bytes, node.inputs))
        return device.called + max(attention_seconds(node, device), moved / device.bandwidth)
    if node.op == "embedding":
        # a computed table is memory of its own, so that a large one has to save that much
        _, table = node.inputs
        whole = size_bytes(table) if table.inputs else 0.0
        return device.called + (_looked_up(node) + whole) / device.bandwidth
    if OPS[node.op].kind is Kind.SCAN:
        moved = 2 * size_bytes(node.inputs[0]) / device.bandwidth
        return device.called + fused_seconds(node, device) + moved
    if node.op in ("reshape", "expand"):
        return PER_OP
    if node.op == "permute" and node["order"][:-2] == tuple(range(RANK - 2)):
        return PER_OP  # a product reads its operand either way round
    if node.op == "slice":
        return _cut_charge(node, device)
    if node.op == "cat" and node.inputs[0].op == "cat" and node["axis"] == node.inputs[0]["axis"]:
        # more than two values are joined at once
        return PER_OP + 2 * sum(size_bytes(i) for i in node.inputs[1:]) / device.bandwidth
    given = () if node.row.draws else node.inputs
    moved = size_bytes(node) + sum(size_bytes(i) for i in given)
    return device.called + moved / device.bandwidth


def _read_by_convolution(node: Node, device: DeviceModel) -> float:
    """Bytes, with those that a pass over the result takes where its bias is added by one."""
    read = sum(size_bytes(i) for i in node.inputs)
    adds = device.device.adds_bias and node.inputs[2].op != "scalar"
    return read + (2 * size_bytes(node) if adds else 0.0)


def _looked_up(node: Node) -> float:
    """Bytes that a look-up reads, at most the whole table, and writes."""
    ids, table = node.inputs
    return size_bytes(node) + min(size_bytes(node), size_bytes(table)) + size_bytes(ids)


def _cut_charge(node: Node, device: DeviceModel) -> float:
    """Of a value that is there, a view. Of a computed one, its parts no longer share the kernel
    that made it: they are written and read, and written by a copy unless they lie together."""
    x = node.inputs[0]
    if not x.inputs:
        return PER_OP
    if all(d == 1 for d in x.shape[: node["axis"]]):
        return PER_OP + 2 * size_bytes(node) / device.bandwidth
    return device.called + 3 * size_bytes(node) / device.bandwidth


# --- prices ---------------------------------------------------------------------------------------
class CallPrices:
    """The prices of a plan's calls of PyTorch, to be asked in their order.

    PyTorch itself says where a result lies, on tensors without memory (of the device "meta"):
    whether it is a view, and in which order its elements are.
    """

    def __init__(self, plan: Plan, device: DeviceModel) -> None:
        self.plan, self.device = plan, device
        self.sizes = {
            name: d.hint
            for n in plan.graph.nodes()
            for d in n.shape
            if isinstance(d, Sym)
            for name in _name_of(d)
        }
        self.there: dict[Node, torch.Tensor] = {}
        self.calls: dict[Any, Any] = {}
        self.turned = {n.inputs[0]: n for n in plan.graph.nodes() if turned_forth(n)}

    def price(self, call: ExternCall) -> Price:
        node = call.node
        if isinstance(self.plan.buffers.places[node], ViewOf):
            return Price(PER_OP)
        given = [self._lies(i) for i in node.inputs]
        calls = len(self.calls)
        made = self._made(node, given)
        self.there[node] = made
        read = () if node.row.draws else reads(node)
        moved = self._bytes(node) + sum(self._bytes(i) for i in read)
        memory = {
            t.untyped_storage()._cdata
            for t, i in zip(given, node.inputs, strict=True)
            if i.op != "scalar"
        }
        is_view = made.untyped_storage()._cdata in memory
        again = node.op == "aten" and node["index"] is not None and len(self.calls) == calls
        found = Price(self.device.view) if is_view or again else self._called(node, moved)
        if node in self.plan.buffers.dense and not made.is_contiguous():
            copied = self.copied(node)
            self.there[node] = made.contiguous()
            return found.then(copied)
        return found

    def _called(self, node: Node, moved: float) -> Price:
        if all(i.op == "scalar" for i in node.inputs) and not node.row.draws:  # filled
            return Price.of(self.device, moved=moved).then(Price(self.device.memory))
        return self._computed(node, moved).then(Price(self.device.call))

    def _computed(self, node: Node, moved: float) -> Price:
        device = self.device
        if node.op == "linear":
            folded = is_folded(node.inputs[1], is_parametric)
            return Price.of(device, busy=product_seconds(node, device, folded), moved=moved)
        if node.op in CONVOLUTIONS:
            moved += _read_by_convolution(node, device) - sum(size_bytes(i) for i in node.inputs)
            found = Price.of(device, busy=product_seconds(node, device), moved=moved)
            bias = node.inputs[2]
            filled = bias.op == "scalar" and bias["value"] != 0  # PyTorch wants a tensor
            found = found.then(Price.of(device)) if filled else found
            if node in self.plan.buffers.turned:
                lies = node.inputs[0] in self.plan.buffers.turned
                return found if lies else found.then(laid_out(node, device))
            if node not in self.turned and is_converted(node, self.plan, device):
                return found.then(converted(node, device))
            return found
        if node.op in ATTENTIONS:
            return Price.of(device, busy=attention_seconds(node, device), moved=moved)
        if node.op == "embedding":
            return Price.of(device, moved=_looked_up(node))
        if node.op == "aten" and _ATTENTION in str(node["target"]):
            busy = called_seconds(call_flops(node), device)
            return Price.of(device, busy=busy, moved=moved)
        if node.kind in (Kind.MOVE, Kind.OPAQUE):
            return Price.of(device, moved=moved)
        return Price.of(device, moved=moved, beside=fused_seconds(node, device))

    def copied(self, node: Node) -> Price:
        """Of writing a value once more."""
        moved = 2 * self._bytes(node)
        copied = Price.of(self.device, moved=moved).then(Price(self.device.call))
        if _neighbours_lie_apart(self._lies(node)):
            longer = moved / self.device.bandwidth * (1 / self.device.crosses - 1)
            return copied.then(Price(longer))
        return copied

    def lies_as_wanted(self, out: Output) -> bool:
        """Whether a result has the strides that it is handed over with: eager's, or else row after
        row."""
        lies = self._lies(out.value)
        shape = [hint(d) for d in out.shape]
        if out.strides is None:
            return lies.is_contiguous()
        given = lies.reshape(shape).stride()
        wanted = [hint(d) for d in out.strides]
        return all(a == b for n, a, b in zip(shape, given, wanted, strict=True) if n != 1)

    def _bytes(self, node: Node) -> float:
        return elements(node) * self.plan.stored(node).itemsize

    def _lies(self, node: Node) -> torch.Tensor:
        """A tensor that lies as a value does; of kernels and leaves row after row."""
        if node not in self.there:
            self.there[node] = self._empty(node)
        return self.there[node]

    def _empty(self, node: Node) -> torch.Tensor:
        shape = [hint(d) for d in node.shape]
        kind = self.plan.stored(node)
        if node in self.turned and self.plan.images_last:
            order: tuple[int, ...] = self.turned[node]["order"]
            last = torch.empty([shape[a] for a in order], dtype=kind, device="meta")
            return last.permute([order.index(a) for a in range(RANK)])
        return torch.empty(shape, dtype=kind, device="meta")

    def _made(self, node: Node, given: list[torch.Tensor]) -> torch.Tensor:
        if node.row.draws or all(i.op == "scalar" for i in node.inputs):
            return self._empty(node)  # filled with numbers
        try:
            made = value_of(node, given, {}, self.sizes, False, self.calls)
        except (KeyError, NotImplementedError, RuntimeError, TypeError):
            return self._empty(node)  # PyTorch cannot tell without memory
        if node.op == "aten" and _ATTENTION in str(node["target"]):
            # PyTorch's fast kernels write it token by token, and the slow one alone is told of here
            made = made.transpose(-3, -2).contiguous().transpose(-3, -2)
        return made if made.device.type == "meta" else self._empty(node)


_ATTENTION = "scaled_dot_product_attention"


def _neighbours_lie_apart(value: torch.Tensor) -> bool:
    """Whether a step along the last axis is none to the next element, as in a transposed matrix."""
    steps = [s for n, s in zip(value.shape, value.stride(), strict=True) if n != 1]
    return bool(steps) and steps[-1] > 1


def _name_of(size: Sym) -> tuple[str, ...]:
    """The name of a size that is no polynomial of others."""
    ((names, factor), *more) = size.terms
    return names if len(names) == 1 and factor == 1 and not more else ()
