"""What time is told in: the charge of a node, which guides the search for a cheaper graph, and the
price of a kernel or a call, of which that of a plan is the sum, and decides.

Both are rooflines of the same facts, which the families of kernels say of their own
(`families/*/price.py`), and `planner/calls.py` of all that PyTorch computes: arithmetic or memory,
whichever takes longer, and the launches. A charge takes it that the kernels are fused as they can
be, since no plan is there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from math import prod
from typing import NamedTuple, Protocol

from refold.devices import DeviceModel
from refold.ir import OPS, Graph, Kind, Node, hint
from refold.ir.attention import operands
from refold.ir.ops import ATTENTIONS, CONVOLUTIONS

# what a kernel does beside what takes longest overlaps with it, but for so much
NOT_OVERLAPPED = 1 / 8
# what one more op costs beside its arithmetic, so that of two equal forms the shorter wins
PER_OP = 1e-12

Parametric = Callable[[Node], bool]  # whether a value follows from parameters alone


class Pass(NamedTuple):
    """A pass over a value in memory: one for all the nodes that need it (a mean and a variance)."""

    value: Node
    axes: tuple[int, ...]
    seconds: float


class Charge(NamedTuple):
    """Seconds that a node adds to a call, its inputs being there, and a pass that it shares."""

    seconds: float
    shares: Pass | None = None


@dataclass(frozen=True)
class Price:
    """Predicted seconds of one kernel, or of one call of PyTorch, in a call of the model.

    launches: how often forward starts something. kernels: how many kernels of a device these are.
    moved: bytes read and written. busy: seconds of arithmetic.
    """

    seconds: float
    launches: int = 0
    kernels: int = 0
    moved: float = 0.0
    busy: float = 0.0

    @staticmethod
    def of(
        device: DeviceModel,
        *,
        busy: float = 0.0,
        moved: float = 0.0,
        beside: float = 0.0,
        kernels: int = 1,
    ) -> Price:
        """A launch of some kernels: products or moving memory, whichever takes longer, and so much
        of the other as does not overlap.

        busy: seconds of products. moved: bytes. beside: seconds of what else is computed that do
        not overlap with these (`fused_seconds`).
        """
        longer, shorter = sorted((busy, moved / device.bandwidth), reverse=True)
        seconds = kernels * device.launch + longer + NOT_OVERLAPPED * shorter + beside
        return Price(seconds, 1, kernels, moved, busy + beside)

    def then(self, other: Price) -> Price:
        """Both, one after the other."""
        return Price(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        if not self.kernels:
            return f"{self.seconds * 1e6:.3g} us"
        words = launches_of(self.launches, self.kernels)
        moved = f"{self.moved / 1e6:.3g} MB, {self.busy * 1e6:.3g} us of arithmetic"
        return f"{self.seconds * 1e6:.4g} us: {words}, {moved}"


def launches_of(launches: int, kernels: int) -> str:
    """In words."""
    words = "1 launch" if launches == 1 else f"{launches} launches"
    return words if launches == kernels else f"{words}, {kernels} kernels"


@dataclass(frozen=True)
class PlanPrice:
    """The price of a plan. steps: of each of its steps. beside: of what is folded, packed, copied
    and handed over beside them, in words."""

    steps: tuple[Price, ...] = ()
    beside: tuple[tuple[str, Price], ...] = ()

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self._all)

    @property
    def launches(self) -> int:
        return sum(p.launches for p in self._all)

    @property
    def kernels(self) -> int:
        return sum(p.kernels for p in self._all)

    def __str__(self) -> str:
        return f"{self.seconds * 1e6:.4g} us: {launches_of(self.launches, self.kernels)}"

    @property
    def _all(self) -> tuple[Price, ...]:
        return (*self.steps, *(p for _, p in self.beside))


class Pricer(Protocol):
    """What the engine asks: a guide inside the search, and the price that decides."""

    def charges(self, node: Node) -> Charge:
        """What a node adds to a call."""
        ...

    def price(self, graph: Graph, originals: Mapping[Node, Node]) -> float:
        """Seconds of the plan that is made for a graph.

        originals: for its values, equal ones of the graph as it was captured.
        """
        ...


def elements(node: Node) -> float:
    total = 1.0
    for d in node.shape:
        total *= hint(d)
    return total


def size_bytes(node: Node) -> float:
    if node.op == "cast" and not node.inputs[0].inputs:
        node = node.inputs[0]  # it is read as it lies in memory
    return elements(node) * node.dtype.itemsize


def fused_seconds(node: Node, device: DeviceModel) -> float:
    """Seconds by which the arithmetic of a pointwise op, a reduction or a scan makes the kernel
    longer that it is part of."""
    kind = OPS[node.op].kind
    over = node.inputs[0] if kind is Kind.REDUCE or kind is Kind.SCAN else node
    return PER_OP + NOT_OVERLAPPED * elements(over) * OPS[node.op].flops.plain / device.plain_flops


# of attention's ops that are no attention: a gradient's five, two of which its results share
_PRODUCTS = {"_sums": 0, "_query_gradient": 2, "_key_gradient": 1, "_value_gradient": 2}


def product_flops(node: Node) -> float:
    """Multiplications and additions of a contraction, or of attention's products."""
    if node.op in ATTENTIONS:  # of causal ones about half count
        q, k, *_ = operands(node)
        products = next((n for end, n in _PRODUCTS.items() if node.op.endswith(end)), 2)
        each = 2.0 * elements(q) * hint(k.shape[-3])
        return products * each * (0.5 if node.get("causal") else 1.0)
    if node.op in CONVOLUTIONS:
        x, w, _ = node.inputs
        features = w.shape[-len(node["strides"]) - 2]
        return 2.0 * elements(node if node.op == "conv" else x) * elements(w) / hint(features)
    return 2.0 * elements(node) * hint(node.inputs[0].shape[-1])


# of the rate of PyTorch's products: what its attention of float32 reaches (docs/attention.md)
_ATTENDS = 0.66


def attention_seconds(node: Node, device: DeviceModel) -> float:
    """Seconds of PyTorch's attention, or of its gradient."""
    return called_seconds(product_flops(node), device)


def called_seconds(flops: float, device: DeviceModel) -> float:
    """The same of so many multiplications and additions."""
    return flops / (device.product_flops * device.library * _ATTENDS)


_VOLUME = 3  # axes of a volume's places


def product_seconds(node: Node, device: DeviceModel, folded: bool = False) -> float:
    """Seconds of a contraction's arithmetic. folded: whether its weight is a folded parameter."""
    seconds = product_flops(node) / device.product_flops * (device.folded if folded else 1.0)
    if node.op == "conv_transpose" and set(node["strides"]) == {1}:
        x, places = node.inputs[0], len(node["strides"])
        if not device.gathers:
            seconds *= device.transposed
        elif places == _VOLUME:
            made, given = (prod(map(hint, n.shape[-places:])) for n in (node, x))
            seconds *= device.transposed * max(1.0, made / given)
    return seconds


def is_folded(node: Node, parametric: Parametric) -> bool:
    """Is it computed from parameters, in more than a change of place or dtype?"""
    while node.op == "cast" or (node.kind is Kind.MOVE and len(node.inputs) == 1):
        if not (node.op == "cast" or node.row.selects):
            return parametric(node)
        node = node.inputs[0]
    return bool(node.inputs) and parametric(node)


def product_charge(node: Node, device: DeviceModel, parametric: Parametric) -> float:
    """Seconds of a product. Nothing fuses in front of it: an operand that is computed is written,
    and read."""
    read = sum(size_bytes(i) for i in node.inputs)
    made = sum(size_bytes(i) for i in node.inputs if _is_made(i, parametric))
    busy = product_seconds(node, device, is_folded(node.inputs[1], parametric))
    return max(busy, read / device.bandwidth) + device.called + 2 * made / device.bandwidth


def _is_made(node: Node, parametric: Parametric) -> bool:
    """Must this operand of a product be written first? Parameters and products are there."""
    while node.op == "reshape":
        node = node.inputs[0]
    return bool(node.inputs) and node.op != "linear" and not parametric(node)
