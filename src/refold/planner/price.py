"""What the engine asks: charges of nodes, of what the families say of their kernels and
`planner/calls.py` of the rest, and plans with their prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from refold.devices import DeviceModel
from refold.families import FAMILIES
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric
from refold.ir.ops import ATTENTIONS
from refold.plan import Plan, Storage
from refold.plan.layout import channels_last
from refold.planner.calls import charge_of, fold_seconds
from refold.planner.make import Known, make_plan
from refold.planner.plan_price import plan_price
from refold.price import Charge, product_flops, size_bytes

_NOTHING = Charge(0.0)


@dataclass
class PlanPricer:
    """Answers the engine (`price.Pricer`): plans are made for one device and one model.

    stored, every: of a widened graph, the dtypes that its values are stored in (capture/widen.py).
    dtype: of the model's first tensor. images: what lies channels-last, and its number of places.
    images_last: whether all the example's images lie so.
    """

    device: DeviceModel
    stored: Mapping[Node, torch.dtype] = field(default_factory=dict)
    every: torch.dtype | None = None
    dtype: torch.dtype | None = None
    images: Mapping[Node, int] = field(default_factory=dict)
    images_last: bool = False

    def __post_init__(self) -> None:
        self._parametric: dict[Node, bool] = {}
        self._plans: dict[object, Plan] = {}
        self._prices: dict[int, float] = {}  # by the ids of plans, all of which are held
        self._known = Known()

    def charges(self, node: Node) -> Charge:
        if not node.inputs:
            return _NOTHING
        if self._is_parametric(node):
            return Charge(fold_seconds(node, self.device))
        for family in FAMILIES:
            found = family.charges(node, self.device, self._is_parametric)
            if found is not None:
                return found
        return charge_of(node, self.device, self._is_parametric)

    def _is_parametric(self, node: Node) -> bool:
        return is_parametric(node, self._parametric)

    def price(self, graph: Graph, originals: Mapping[Node, Node]) -> float:
        plan = self.plan(graph, originals)
        if id(plan) not in self._prices:
            self._prices[id(plan)] = plan_price(plan, self.device).seconds
        return self._prices[id(plan)]

    def plan(self, graph: Graph, originals: Mapping[Node, Node]) -> Plan:
        """The plan of a graph; one that was priced is not made again."""
        key = graph.roots(), frozenset(originals.items())
        found = self._plans.get(key)
        if found is None:
            storage = Storage.of(self.stored, self.every, originals, self.dtype)
            planned, moved = channels_last(graph, self.images)
            storage = storage.moved(moved)
            found = make_plan(planned, storage, self.device, self.images_last, self._known)
            self._plans[key] = found
        return found


def floor(graph: Graph, device: DeviceModel) -> float:
    """Seconds below which no kernel for this graph can be: its products' arithmetic, or reading
    every input and parameter once and writing every output, whichever is longer."""
    memo: dict[Node, bool] = {}
    flops = 0.0
    read: set[Node] = set()
    stack, seen = list(graph.roots()), set(graph.roots())
    while stack:
        node = stack.pop()
        if is_parametric(node, memo):
            continue  # a fold is read whole, and its insides are not
        if node.row.is_contraction or node.op in ATTENTIONS:
            flops += product_flops(node)
        for i in node.inputs[: 1 if node.op == "embedding" else None]:  # few rows may be read
            if (not i.inputs or is_parametric(i, memo)) and i.op != "scalar":
                read.add(i)
        stack += [i for i in node.inputs if i not in seen]
        seen.update(node.inputs)
    moved = sum(size_bytes(n) for n in read) + sum(size_bytes(r) for r in set(graph.roots()))
    return max(flops / device.product_flops, moved / device.bandwidth)
