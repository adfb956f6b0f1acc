"""optimize(): a graph in, an equal and cheaper graph out, with the steps that led there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from refold.engine.egraph import EGraph
from refold.engine.explain import Step, explain, proof
from refold.engine.extract import charged, computed, extract
from refold.engine.normalise import Ban, Rewrite, normalise
from refold.engine.saturate import Budget, merge, saturate
from refold.ir import Graph, Node
from refold.ir.graph import draws_of
from refold.meanwhile import uncollected
from refold.price import Pricer
from refold.rules import EXACT, RULES, Exact, Rule


@dataclass(frozen=True)
class Optimized:
    """The cheapest equal graph that was found.

    steps: how it follows from the original, in order. price_before, price_after: predicted seconds
    a call of their plans. label: the weakest promise among the rules used. independent_outputs:
    outputs that were computed from inputs and turn out not to depend on any: likely a bug in the
    model. originals: for values of the new graph, an equal one of the original where there is one.
    rewrites: the same steps as nodes, those on parameters alone among them.
    """

    graph: Graph
    steps: tuple[Step, ...]
    price_before: float
    price_after: float
    label: Exact
    independent_outputs: tuple[int, ...]
    originals: Mapping[Node, Node] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()


# How many graphs the search ends with, beside the original, of which plans are made and priced.
LAST = 8


@uncollected
def optimize(
    graph: Graph,
    pricer: Pricer,
    *,
    strict: bool = False,
    unsafe: bool = False,
    banned: Iterable[Ban] = (),
    budget: Budget | None = None,
) -> Optimized:
    """Rewrite `graph` to the one of which the plan has the least price.

    Charges of nodes guide the search to a few last graphs; the prices of their plans decide.
    strict: use no rule that holds for finite values only. unsafe: use rules that are marked
    `unsafe` where NaN may be lost, too. banned: rules that are not used, at one node or
    anywhere. Deterministic: the budget counts work, not time.
    """
    budget = budget or Budget.of(len(graph.nodes()))
    banned = frozenset(banned)
    rules = tuple(
        replace(r, mark=None, safe=None) if unsafe and r.mark == "unsafe" else r
        for r in RULES
        if (r.name, None) not in banned and not (strict and r.exact == "finite")
    )
    egraph, drawn = EGraph(), draws_of(graph.nodes())
    for root in graph.roots():
        egraph.add(root)
    merge(egraph, rules)
    settled: set[Node] = set()
    normal, rewrites = _directed(egraph, graph, rules, banned, settled)
    saturate(egraph, rules, budget, banned)
    extracted = extract(egraph, list(graph.roots()), [graph, normal], pricer)
    # what the e-graph found may be open to the directed pass again
    again = [_directed(egraph, g, rules, banned, settled)[0] for g in extracted]
    prices = {
        g: pricer.price(g, _originals(egraph, graph, g))
        for g in last(graph, (normal, *extracted, *again), pricer)
        if draws_of(g.nodes()) == drawn  # all of them: nothing that follows may be left out
    }
    best = min(prices, key=lambda g: prices[g])
    if not strict and not _keeps_inputs(graph, best):
        return optimize(graph, pricer, strict=True, unsafe=unsafe, banned=banned, budget=budget)
    # the directed pass knows its way; the e-graph's forest knows one, by detours at times
    way = tuple(rewrites if best is normal else proof(egraph, graph, best))
    if not strict and _is_detour(egraph, graph, best, way):
        kept = optimize(graph, pricer, strict=True, unsafe=unsafe, banned=banned, budget=budget)
        if kept.price_after <= prices[best]:  # the stronger promise costs nothing
            return kept
    steps = explain(way, pricer)
    return Optimized(
        best,
        steps,
        prices[graph],
        prices[best],
        weakest(steps),
        independent(graph, best),
        _originals(egraph, graph, best),
        way,
    )


def _is_detour(egraph: EGraph, graph: Graph, best: Graph, way: Iterable[Rewrite]) -> bool:
    """Do only reasons for the left sides of steps hold for finite values alone? Then another way
    may do without these."""
    if all(step.rule.exact != EXACT[-1] for step in way):
        return False
    alone = proof(egraph, graph, best, whole=False)
    return all(step.rule.exact != EXACT[-1] for step in alone)


def _originals(egraph: EGraph, before: Graph, after: Graph) -> dict[Node, Node]:
    known: dict[int, Node] = {}
    for node in before.nodes():
        known.setdefault(egraph.find(node), node)
    found = {n: known.get(egraph.find(n)) for n in after.nodes() if n in egraph.number}
    return {n: original for n, original in found.items() if original is not None}


def last(graph: Graph, found: Iterable[Graph], pricer: Pricer) -> list[Graph]:
    """The original first, which wins where nothing is cheaper, then the rest by their charges."""
    graphs: dict[tuple[Node, ...], Graph] = {graph.roots(): graph}
    for g in found:
        graphs.setdefault(g.roots(), g)
    first, *rest = graphs.values()
    return [first, *sorted(rest, key=lambda g: charged(computed(g), pricer))[:LAST]]


def _directed(
    egraph: EGraph,
    graph: Graph,
    rules: tuple[Rule, ...],
    banned: Collection[Ban],
    settled: set[Node],
) -> tuple[Graph, tuple[Rewrite, ...]]:
    """The normal form of `graph` and how it came; the e-graph learns why they are equal."""
    normal, rewrites = normalise(graph, rules, banned, settled)
    for step in rewrites:
        egraph.union(step.before, step.after, step.rule)
    for root in (*graph.roots(), *normal.roots()):
        egraph.add(root)
    return normal, rewrites


def weakest(steps: Iterable[Step]) -> Exact:
    """The label of a result that took all of `steps`."""
    return max((s.label for s in steps), key=EXACT.index, default=EXACT[0])


def independent(before: Graph, after: Graph) -> tuple[int, ...]:
    """Outputs that read an input before and read none after."""
    pairs = zip(_read(before), _read(after), strict=True)
    return tuple(i for i, (a, b) in enumerate(pairs) if a and not b)


def _keeps_inputs(before: Graph, after: Graph) -> bool:
    """Does every output still read all the inputs that it read, or none at all?

    An output that forgets one of its inputs would no longer pass on that input's NaN.
    """
    return all(not b or a == b for a, b in zip(_read(before), _read(after), strict=True))


def _read(graph: Graph) -> list[frozenset[Node]]:
    """For each output the inputs and buffers that it is computed from."""
    read: dict[Node, frozenset[Node]] = {}
    for n in graph.nodes():
        inner = dict.fromkeys(read[i] for i in n.inputs)
        own = frozenset([n] if n.op in ("input", "state") else ())
        # most values read what one of their inputs reads: that set is kept, not copied
        most = max((own, *inner), key=len)
        read[n] = most if all(i <= most for i in inner) else own.union(*inner)
    return [read[r] for r in graph.roots()]
