"""Predicted seconds: a roofline per op, as the plan will run it.

What the model holds to be true of a planned kernel:
- A contraction costs its arithmetic or the reading of its operands, whichever is longer, and a
  launch. Nothing fuses in front of it: an operand that is computed must be written and read.
- What is pointwise, or reduces along rows, runs in the kernel that made its input: its arithmetic
  counts, at `EPILOGUE_DISCOUNT` of the plain rate's price, because it overlaps with the product's
  own work.
- A reduction over other axes, a softmax or a copy passes over memory again. So does cutting a
  computed value apart: its parts no longer share the kernel that made it, which is why two
  products of one input are merged only where reading the input costs more than that.
- Parameters cost nothing per call once folded. A fold is done anew when a parameter changes, which
  is counted as once in `CALLS_PER_FOLD` calls; so a folded copy of a large weight must save more
  than an epilogue op or two, and of two folds the smaller is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from refold.devices import DEVICES, Device
from refold.devices.device import Batches
from refold.ir import NARROW, OPS, Graph, Kind, Node, hint
from refold.ir.graph import is_parametric, topological
from refold.ir.ops import CONVOLUTIONS
from refold.ir.shapes import RANK

EPILOGUE_DISCOUNT = 1 / 8
CALLS_PER_FOLD = 100
# what one more op costs beside its arithmetic, so that of two equal forms the shorter wins
PER_OP = 1e-12


@dataclass(frozen=True)
class DeviceModel:
    """A device as the plan of one model sees it.

    float32: the accuracy that products of float32 have to have, "ieee" or "tf32". dtype: what the
    model's values have in memory, by which rates are chosen. hold: seconds charged to a call for
    each byte of a folded parameter, which is kept in memory beside what it came from.
    """

    device: Device
    float32: str = "ieee"
    dtype: torch.dtype | None = None
    hold: float = 0.0

    @classmethod
    def of(cls, name: str) -> DeviceModel:
        """The device of that name, for products of full accuracy."""
        return cls(DEVICES[name])

    def at(self, dtype: torch.dtype | None) -> DeviceModel:
        """The same for a model whose values have that dtype in memory."""
        return replace(self, dtype=dtype)

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def product_flops(self) -> float:
        return self._rates[0]

    @property
    def folded(self) -> float:
        """How many products one with a folded weight takes."""
        return self._rates[1]

    @property
    def _rates(self) -> tuple[float, float]:
        own = self.device.product_flops, self.device.folded
        return own if self.dtype is None else self.device.rates.get(self.dtype, own)

    @property
    def plain_flops(self) -> float:
        return self.device.plain_flops

    @property
    def bandwidth(self) -> float:
        return self.device.bandwidth

    @property
    def launch(self) -> float:
        return self.device.launch

    @property
    def batches(self) -> Batches | None:
        """Which batches of products of float32 our kernels compute. None of TF32: cuBLAS's read
        both sides as they are, which packing would cost."""
        return None if self.float32 == "tf32" else self.device.batches

    @property
    def quantizes(self) -> int | None:
        """From how many bytes on a value is kept in 16 bits until it is normalised, if ever."""
        return self.device.quantizes if self.float32 == "tf32" else None

    @property
    def exponentials(self) -> bool:
        """Products reduce rows by logsumexp in one pass. One whose result has 16 bits stores it
        sooner than it takes exponentials."""
        return self.device.exponentials and self.dtype not in NARROW


def seconds(graph: Graph, device: DeviceModel) -> float:
    """Predicted seconds of one call: its work, or its floor and a launch where that is longer."""
    return max(work(graph, device), floor(graph, device) + device.launch)


def work(graph: Graph, device: DeviceModel) -> float:
    """Seconds of the ops of one call, added up; it tells apart what only memory bounds."""
    memo: dict[Node, bool] = {}
    total = 0.0
    shared: dict[tuple[Node, tuple[int, ...]], float] = {}
    for node in _kernels(graph, memo):
        total += node_seconds(node, device, memo)
        found = passes(node, device, memo)
        if found is not None:
            shared[found[0]] = found[1]
    return total + sum(shared.values())


def fusion_breaks(graph: Graph, device: DeviceModel) -> float:
    """How many values are moved between what could otherwise be one kernel."""
    memo: dict[Node, bool] = {}
    fusible = (Kind.POINTWISE, Kind.REDUCE, Kind.SCAN)
    moved = {
        i
        for node in _kernels(graph, memo)
        if OPS[node.op].kind in fusible
        for i in node.inputs
        if i.op in ("reshape", "permute") and not is_parametric(i, memo)
    }
    return float(sum(OPS[i.inputs[0].op].kind in fusible for i in moved))


def floor(graph: Graph, device: DeviceModel) -> float:
    """Seconds below which no kernel for this graph can be: its products' arithmetic, or reading
    every input and parameter once and writing every output, whichever is longer."""
    memo: dict[Node, bool] = {}
    flops = moved = 0.0
    read: set[Node] = set()
    for node in _kernels(graph, memo):
        if node.row.is_contraction and not memo[node]:
            flops += product_flops(node)
        for i in node.inputs[: 1 if node.op == "embedding" else None]:  # few rows may be read
            if not memo[node] and (not i.inputs or memo[i]) and i.op != "scalar":
                read.add(i)
    moved = sum(size_bytes(n) for n in read) + sum(size_bytes(r) for r in set(graph.roots()))
    return max(flops / device.product_flops, moved / device.bandwidth)


def node_seconds(node: Node, device: DeviceModel, memo: dict[Node, bool]) -> float:
    """What this node adds to a call, its inputs being there. `memo` as in `is_parametric`."""
    if not node.inputs:
        return 0.0
    if is_parametric(node, memo):
        return fold_seconds(node, device)
    kind = OPS[node.op].kind
    if kind is Kind.CONTRACT:
        read = sum(size_bytes(i) for i in node.inputs)
        arithmetic = product_flops(node) / device.product_flops
        if is_folded(node.inputs[1], memo):
            arithmetic *= device.folded
        total = max(arithmetic, read / device.bandwidth) + device.launch
        made = sum(size_bytes(i) for i in node.inputs if _is_made(i, memo))
        total += 2 * made / device.bandwidth
        if any(d != 1 for d in node.inputs[1].shape[:-2]):
            # a batch of products is a library's call: its result is written and read again
            total += device.launch + 2 * size_bytes(node) / device.bandwidth
        return total
    if node.op in CONVOLUTIONS:
        read = sum(size_bytes(i) for i in node.inputs)
        if device.device.adds_bias and node.inputs[2].op != "scalar":
            read += 2 * size_bytes(node)
        arithmetic = product_flops(node) / device.product_flops
        return max(arithmetic, read / device.bandwidth) + (
            device.launch + size_bytes(node) / device.bandwidth
        )
    if node.op == "embedding":
        # a computed table is memory of its own, so that a large one has to save that much
        ids, table = node.inputs
        moved = size_bytes(node) + min(size_bytes(node), size_bytes(table)) + size_bytes(ids)
        moved += size_bytes(table) if table.inputs else 0.0
        return device.launch + moved / device.bandwidth
    arithmetic = EPILOGUE_DISCOUNT * OPS[node.op].flops.plain / device.plain_flops
    if kind is Kind.POINTWISE:
        return PER_OP + elements(node) * arithmetic
    x = node.inputs[0]
    if kind is Kind.REDUCE:
        return PER_OP + elements(x) * arithmetic
    if kind is Kind.SCAN:
        return device.launch + elements(x) * arithmetic + 2 * size_bytes(x) / device.bandwidth
    if node.op in ("reshape", "expand"):
        return PER_OP
    if node.op == "permute" and node["order"][:-2] == tuple(range(RANK - 2)):
        return PER_OP  # a product reads its operand either way round
    if node.op == "slice":
        return _cut_seconds(node, device)
    if node.op == "cat" and node.inputs[0].op == "cat" and node["axis"] == node.inputs[0]["axis"]:
        # more than two values are joined at once
        return PER_OP + 2 * sum(size_bytes(i) for i in node.inputs[1:]) / device.bandwidth
    moved = size_bytes(node) + sum(size_bytes(i) for i in node.inputs)
    return device.launch + moved / device.bandwidth


def _cut_seconds(node: Node, device: DeviceModel) -> float:
    """Of a value that is there, a view. Of a computed one, its parts no longer share the kernel
    that made it: they are written and read, and written by a copy unless they lie together."""
    x = node.inputs[0]
    if not x.inputs:
        return PER_OP
    before = x.shape[: node["axis"]]
    if all(d == 1 for d in before):
        return PER_OP + 2 * size_bytes(node) / device.bandwidth
    return device.launch + 3 * size_bytes(node) / device.bandwidth


def passes(
    node: Node, device: DeviceModel, memo: dict[Node, bool]
) -> tuple[tuple[Node, tuple[int, ...]], float] | None:
    """The pass over memory that a reduction along other axes than rows needs, and its seconds.

    Reductions of one value over the same axes (a mean and a variance) share the pass, which is why
    it is no part of `node_seconds`.
    """
    if OPS[node.op].kind is not Kind.REDUCE or _along_rows(node) or is_parametric(node, memo):
        return None
    x = node.inputs[0]
    return (x, node["axes"]), device.launch + 2 * size_bytes(x) / device.bandwidth


def fold_seconds(node: Node, device: DeviceModel) -> float:
    """A folded parameter's share of one call: reading its sources, computing it, and the price of
    the memory that it is kept in."""
    inner = topological([node])
    moved = size_bytes(node) + sum(size_bytes(n) for n in inner if not n.inputs)
    flops = sum(product_flops(n) for n in inner if n.op == "linear")
    work = moved / device.bandwidth + flops / device.product_flops
    return PER_OP + work / CALLS_PER_FOLD + device.hold * size_bytes(node)


def is_folded(node: Node, memo: dict[Node, bool]) -> bool:
    """Is it computed from parameters, in more than a change of place or dtype?"""
    while node.op == "cast" or (node.kind is Kind.MOVE and len(node.inputs) == 1):
        if not (node.op == "cast" or node.row.selects):
            return is_parametric(node, memo)
        node = node.inputs[0]
    return bool(node.inputs) and is_parametric(node, memo)


def product_flops(node: Node) -> float:
    """Multiplications and additions of a contraction."""
    if node.op in CONVOLUTIONS:
        x, w, _ = node.inputs
        features = w.shape[-len(node["strides"]) - 2]
        return 2.0 * elements(node if node.op == "conv" else x) * elements(w) / hint(features)
    return 2.0 * elements(node) * hint(node.inputs[0].shape[-1])


def elements(node: Node) -> float:
    total = 1.0
    for d in node.shape:
        total *= hint(d)
    return total


def size_bytes(node: Node) -> float:
    if node.op == "cast" and not node.inputs[0].inputs:
        node = node.inputs[0]  # it is read as it lies in memory
    return elements(node) * node.dtype.itemsize


def _is_made(node: Node, memo: dict[Node, bool]) -> bool:
    """Must this operand of a product be written first? Parameters and products are there."""
    while node.op == "reshape":
        node = node.inputs[0]
    return bool(node.inputs) and node.op != "linear" and not is_parametric(node, memo)


def _along_rows(node: Node) -> bool:
    x = node.inputs[0]
    wide = [a for a in node["axes"] if x.shape[a] != 1]
    return not wide or wide == [-1]


def _kernels(graph: Graph, memo: dict[Node, bool]) -> list[Node]:
    """What a call computes, and the folded parameters that it reads, not their insides."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(graph.roots())]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if not is_parametric(node, memo):
                stack.extend((i, False) for i in reversed(node.inputs))
    return order
