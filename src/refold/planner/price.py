"""Charges of nodes and prices of plans: of what the families say of their kernels, and
`planner/calls.py` of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from refold.devices import DeviceModel
from refold.families import BY_NAME, FAMILIES
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric
from refold.plan import Plan, Storage
from refold.plan.buffers import Fresh, Written
from refold.plan.layout import channels_last
from refold.plan.plan import Group
from refold.plan.product import TRANSPOSED, Pack
from refold.planner.calls import CALLS_PER_FOLD, CallPrices, charge_of, fold_seconds
from refold.planner.make import make_plan
from refold.price import Charge, PlanPrice, Price, elements, product_flops, size_bytes

_NOTHING = Charge(0.0)
PACKED_BYTES = 4  # of an element: two halves of 16 bits, whatever its dtype was


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
        return plan_price(self.plan(graph, originals), self.device).seconds

    def plan(self, graph: Graph, originals: Mapping[Node, Node]) -> Plan:
        """The plan of a graph; one that was priced is not made again."""
        key = graph.roots(), frozenset(originals.items())
        found = self._plans.get(key)
        if found is None:
            storage = Storage.of(self.stored, self.every, originals, self.dtype)
            planned, moved = channels_last(graph, self.images)
            storage = storage.moved(moved)
            found = make_plan(planned, storage, self.device, self.images_last)
            self._plans[key] = found
        return found


def plan_price(plan: Plan, device: DeviceModel) -> PlanPrice:
    """What a plan takes on a device: each kernel by its family, each call of PyTorch, and what is
    folded, packed and copied beside them."""
    calls = CallPrices(plan, device)
    steps: list[Price] = []
    for step in plan.steps:
        if isinstance(step, Group):
            got = sum(isinstance(plan.buffers.places.get(o), Fresh) for o in step.outputs)
            memory = Price(got * device.memory)
            steps.append(BY_NAME[step.family].price(step, device).then(memory))
        elif step.node in plan.buffers.places:
            steps.append(calls.price(step))
        else:
            steps.append(Price(0.0))  # a kernel, or an addition in the end, does its work
    return PlanPrice(tuple(steps), tuple(_beside(plan, device, calls)))


def _beside(plan: Plan, device: DeviceModel, calls: CallPrices) -> Iterator[tuple[str, Price]]:
    buffers = plan.buffers
    for fold in plan.folds:
        yield f"folding {fold.name}", Price(fold_seconds(fold.node, device))
    for pack in buffers.prepared.packs:
        moved, held = _packed(pack)
        share = moved / device.bandwidth / CALLS_PER_FOLD
        yield "packing a parameter", Price(share + device.hold * held)
    seen = set(buffers.prepared.packs)
    for group in plan.groups:
        given = buffers.given.get(group.name, ())
        for pack in given:
            if pack not in seen:
                seen.add(pack)
                yield "packing a value", _packing(pack, device)
        kernel = group.kernel
        if kernel is None or kernel.itself is None or kernel.itself in given:
            continue
        if not kernel.schedule.rs:
            inside = _packing(kernel.itself, device)
            yield f"packing by {group.name}", replace(inside, launches=0)
    for node in plan.graph.nodes():
        if node in buffers.copied:
            yield "copying a buffer", calls.copied(node)
    for out, handed in zip(plan.outputs, buffers.handed, strict=True):
        if handed.written is Written.BY_KERNEL:
            continue
        if handed.written is not None or handed.cloned or not calls.lies_as_wanted(out):
            yield "handing over a result", calls.copied(out.value)


def _packed(pack: Pack) -> tuple[float, float]:
    """Bytes moved to pack a value, and that its packed form takes."""
    node, _ = pack
    held = PACKED_BYTES * elements(node)
    return size_bytes(node) + held, held


def _packing(pack: Pack, device: DeviceModel) -> Price:
    kernels = 2 if pack[1] == TRANSPOSED else 1  # the largest of each column first
    return Price.of(device, moved=_packed(pack)[0], kernels=kernels)


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
        if node.row.is_contraction:
            flops += product_flops(node)
        for i in node.inputs[: 1 if node.op == "embedding" else None]:  # few rows may be read
            if (not i.inputs or is_parametric(i, memo)) and i.op != "scalar":
                read.add(i)
        stack += [i for i in node.inputs if i not in seen]
        seen.update(node.inputs)
    moved = sum(size_bytes(n) for n in read) + sum(size_bytes(r) for r in set(graph.roots()))
    return max(flops / device.product_flops, moved / device.bandwidth)
