"""Graph -> Plan.

Grouping is greedy in topological order: a node joins the group of the last of its inputs whose
family grows over it and where that makes no cycle; else the first family that claims it computes
it, in a group of its own or in one that shares its passes; else PyTorch does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from refold.devices import ANY, DeviceModel
from refold.families import BY_NAME, FAMILIES
from refold.ir import HALF_DTYPES, OPS, Graph, Kind, Node
from refold.ir.graph import is_computed, is_parametric
from refold.plan.memory import Memory, Storage, is_narrowing
from refold.plan.plan import Plan, is_rematerialized, reads_numbers, values_read
from refold.planner import biases, chains
from refold.planner.attended import attended
from refold.planner.buffers import placed
from refold.planner.drafts import Drafts
from refold.planner.drawn import as_calls
from refold.planner.lower import lower
from refold.planner.plan_price import plan_price
from refold.planner.quantize import with_quantized
from refold.planner.recomputed import compute_again, in_their_shapes, read_in_other_shapes
from refold.planner.schedules import with_schedules
from refold.planner.spreads import exact_spreads
from refold.planner.statistics import of_channels
from refold.planner.steps import folds_of, ordered
from refold.planner.turned import with_turned


def make_plan(
    graph: Graph,
    storage: Storage | None = None,
    device: DeviceModel | None = None,
    images_last: bool = False,
    known: Known | None = None,
) -> Plan:
    """Choose folds and groups for a graph.

    storage: what values may be stored as. device: whose kernels compute them; without one those
    that all devices have. images_last: whether the example's images lie with their channels last.
    known: of other graphs with the same results for the same device.
    """
    storage, device = storage or Storage(), device or DeviceModel(ANY)
    known = known or Known()
    plan = _made(graph, storage, device, images_last, known)
    if not chains.beside_kernels(plan, device):
        return plan
    known = replace(known, plans={})  # they are another device's
    without = _made(graph, storage, chains.without_kernels(device), images_last, known)
    return chains.better(plan, without, device)


@dataclass(frozen=True)
class Known:
    """What is planned once for all graphs of a search, many of which are the same when they are
    lowered. lowered: what became of a node. plans: by all that a plan follows from then."""

    lowered: dict[Node, Node] = field(default_factory=dict)
    plans: dict[object, Plan] = field(default_factory=dict)

    @staticmethod
    def key(lowered: Graph, storage: Storage, images_last: bool) -> object:
        """None where values that only a rewritten graph has are stored otherwise."""
        if storage.other is not None:
            return None
        otherwise = {n: d for n, d in storage.known.items() if d != n.dtype}
        return lowered.roots(), frozenset(otherwise.items()), storage.real, images_last


def _made(
    graph: Graph, storage: Storage, device: DeviceModel, images_last: bool, before: Known
) -> Plan:
    """The plan whose convolutions are computed as the device chooses."""
    graph, called = as_calls(graph, device.device.toolchain == "cpp")
    storage = storage.moved(called)
    plain, known = graph, storage
    refused: set[Node] = set()  # values of which no kernel takes statistics after all
    alone: set[Node] = set()  # what no kernel takes whole
    while True:
        graph, moved, statistics = of_channels(plain, device, refused)
        graph, whole_again = attended(graph, device)
        statistics = {whole_again[n]: v for n, v in statistics.items()}
        storage = known.moved({n: whole_again[d] for n, d in moved.items() if d in whole_again})
        whole = statistics.keys() | (_only_reduced(graph) if device.exponentials else set())
        whole -= alone
        lowered, done = lower(graph, whole, exact_spreads(graph), before.lowered)
        key = None if whole else before.key(lowered, storage.moved(done), images_last)
        if key in before.plans:
            return before.plans[key]
        planner = _Planner(lowered, storage.moved(done), device)
        plan = planner.plan()
        apart = {n for n in whole if planner.reduces_apart(done[n])}
        if not apart:
            break
        refused |= {statistics[n] for n in apart if n in statistics}
        alone |= apart - statistics.keys()
    stored = storage.moved(done)
    biased = biases.taken_out(planner) if device.device.adds_bias else set()
    if biased:
        without, added = biases.without(lowered, biased)
        here = {n: added.get(d, d) for n, d in done.items()}
        lowered, behind = lower(without, {here[n] for n in whole})
        stored = storage.moved({n: behind.get(d, d) for n, d in here.items()})
        planner = _Planner(lowered, stored, device)
        plan = planner.plan()
    plan = placed(replace(plan, images_last=images_last))
    read = read_in_other_shapes(planner) if device.device.toolchain == "cuda" else {}
    if read:
        lowered, reshaped, again = in_their_shapes(lowered, read)
        other = _Planner(lowered, stored.moved(reshaped), device, again).plan()
        other = placed(replace(other, images_last=images_last))
        plan = min(plan, other, key=lambda p: plan_price(p, device).seconds)
    plan = with_turned(plan, device)
    if key is not None:
        before.plans[key] = plan
    return plan


def _only_reduced(graph: Graph) -> set[Node]:
    """The logsumexps along rows of values that nothing else reads but reductions: a kernel of rows
    that reads them would have the maximum and the sum for nothing."""
    nodes = graph.nodes()
    read = {i for n in nodes if OPS[n.op].kind is not Kind.REDUCE for i in n.inputs}
    along_rows = (n for n in nodes if n.op == "logsumexp" and n["axes"] == (-1,))
    return {n for n in along_rows if n.inputs[0] not in read}


class _Planner(Drafts):
    def __init__(
        self, graph: Graph, storage: Storage, device: DeviceModel, again: Iterable[Node] = ()
    ) -> None:
        super().__init__(graph)
        self.again.update(again)
        self.device = device
        self.parametric: dict[Node, bool] = {}
        for node in self.order:
            is_parametric(node, self.parametric)
        self.real = storage.real
        self.kinds = (
            {torch.float64} if self.real == torch.float64 else {torch.float32, *HALF_DTYPES}
        )
        self.memory = Memory(storage, graph.roots(), self.readers, self.parametric, self.owner)

    def plan(self) -> Plan:
        dynamic = [n for n in self.order if not self.parametric[n] and is_computed(n)]
        for node in dynamic:
            self.now = self.place[node]
            self._place(node)
        self.now = len(self.order)
        self.absorb_pointwise(self)
        if self.device.device.toolchain == "cuda":  # elsewhere nobody timed it
            compute_again(self, self)
        self.absorb_vectors()
        self.count()
        folds = folds_of(self, self.parametric)
        steps = ordered(self, self.parametric, self.memory, self.real)
        if self.device.quantizes is not None:
            steps = with_quantized(self.graph, steps, self.device.quantizes)
        steps = with_schedules(steps, self.device)
        memory = {n: self.memory(n) for n in self.order}
        return Plan(self.graph, folds, steps, memory)

    def reduces_apart(self, node: Node) -> bool:
        """Is a composition in no kernel that takes it whole?"""
        draft = self.owner.get(node)
        return draft is None or node.op not in BY_NAME[draft.family].whole

    # --- grouping -------------------------------------------------------------------------------
    def _place(self, node: Node) -> None:
        if node in self.owner:
            return  # in the epilogue of a product
        # a comparison is computed where its mask is read, never stored
        if is_rematerialized(node) or not self._computable(node) or self._is_stored_so(node):
            return
        makers = {self.owner[i] for i in values_read(node) if i in self.owner}
        cyclic = self.cyclic(node) if makers else None
        for draft in sorted(makers, key=lambda d: d.number, reverse=True):
            family = BY_NAME[draft.family].grow(draft, node, self)
            if family is not None and cyclic is not None and not cyclic(draft):
                draft.family = family
                self.add(draft, node)
                return
        for each in FAMILIES:
            claim = each.claim(node, self)
            if claim is not None:
                self.take(claim)
                return

    def _computable(self, node: Node) -> bool:
        """Are a value and all that it is computed from numbers that the kernels compute with?"""
        return node.dtype in self.kinds and reads_numbers(node, self.kinds)

    def _is_stored_so(self, node: Node) -> bool:
        """Is rounding what the value lies in memory as? Then nothing is left to be computed."""
        if not is_narrowing(node):
            return False
        (x,) = node.inputs
        draft = self.owner.get(x)
        if draft is not None and (OPS[x.op].kind is not Kind.REDUCE or x["axes"] == (-1,)):
            return False
        return self.memory(x) == node.dtype

    def is_open_pointwise(self, node: Node) -> bool:
        """Is it a pointwise value that kernels can compute, and that none computes yet?"""
        row = OPS[node.op]
        return (
            row.kind is Kind.POINTWISE
            and row.cpp is not None
            and node not in self.owner
            and not self.parametric[node]
            and not is_rematerialized(node)
            and self._computable(node)
        )
