"""The directed pass: take every simplification, inputs first, until none is left. Milliseconds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from refold.ir import OPS, Graph, Kind, Node
from refold.ir.graph import topological
from refold.ir.node import rebuild
from refold.rules.find import Binding
from refold.rules.match import Plain, arguments, matches, replacement
from refold.rules.rule import Rule

# A chain of k moves through k ops takes k steps a value; more than this many is a pair of rules
# that undo each other, and the pass then stops where it is, which is still correct.
STEPS_PER_NODE = 40


# rules that are not to be applied, by name: at one node, or at none at all (None)
Ban: TypeAlias = "tuple[str, Node | None]"


@dataclass(frozen=True)
class Rewrite:
    """One application of a rule: `before` became `after`."""

    rule: Rule
    before: Node
    after: Node


class Normaliser:
    """Rewrites nodes to their normal form; remembers what it did.

    settled: nodes that no rule changes, which are not asked again; for the same rules and bans.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        budget: int,
        banned: Collection[Ban] = frozenset(),
        settled: set[Node] | None = None,
    ) -> None:
        self.banned = banned
        self.settled = set() if settled is None else settled
        self.by_op = index(r for r in rules if r.simplify is not False and len(r.patterns) == 1)
        self.view = Plain()
        self.done: dict[Node, Node] = {}
        self.open: set[Node] = set()
        self.steps: list[Rewrite] = []
        self.budget = budget

    def normal(self, root: Node) -> Node:
        """The normal form of `root`."""
        for node in topological([root], self.done):
            if node not in self.done:
                inputs = tuple(self.done[i] for i in node.inputs)
                self.done[node] = self._simplify(rebuild(node, inputs))
        return self.done[root]

    def _simplify(self, node: Node) -> Node:
        """The normal form of a node whose inputs are in normal form."""
        if node in self.done:
            return self.done[node]
        # what is no float is left to what computes it, but for which part of it is wanted
        if node in self.open or not (node.is_float or node.op == "slice"):
            return node
        self.open.add(node)
        result = node
        step = self._first(node)
        if step is not None:
            self.steps.append(step)
            result = self.normal(step.after)
        self.open.discard(node)
        self.done[node] = result
        return result

    def _first(self, node: Node) -> Rewrite | None:
        if len(self.steps) >= self.budget or node in self.settled:
            return None
        undone = False  # a rule would go back to what is being rewritten, and may elsewhere not
        parametric = self.view.parametric(node)
        for rule in self.by_op.get(node.op, ()):
            if (rule.name, node) in self.banned:
                continue
            for found in matches(rule, node, self.view):
                if not wanted(rule, found):
                    continue
                made = replacement(rule, found)
                if made is None or made[0] is node or not same_type(made[0], node):
                    continue
                if parametric and not _drops(node, made[0], found):
                    continue
                if made[0] in self.open:
                    undone = True
                    continue
                return Rewrite(rule, node, made[0])
        if not undone:
            self.settled.add(node)
        return None


def _drops(node: Node, made: Node, found: Binding) -> bool:
    """Does a step on parameters only leave out work? They are folded whatever their form."""
    moves = OPS[node.op].kind is Kind.MOVE and OPS[made.op].kind is Kind.MOVE
    return moves or made in found.values()


def wanted(rule: Rule, found: Binding) -> bool:
    """Does the directed pass take this application?"""
    if callable(rule.simplify):
        return bool(rule.simplify(**arguments(rule, found)))
    return rule.simplify


def same_type(a: Node, b: Node) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def index(rules: Iterable[Rule]) -> Mapping[str, list[Rule]]:
    """Rules by the ops at whose nodes they are looked for."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        for op in rule.roots:
            found.setdefault(op, []).append(rule)
    return found


def normalise(
    graph: Graph,
    rules: Iterable[Rule],
    banned: Collection[Ban] = frozenset(),
    settled: set[Node] | None = None,
) -> tuple[Graph, tuple[Rewrite, ...]]:
    """The graph in normal form, and the steps that led there. settled: of the same rules and bans,
    nodes that none of them changes; more are added."""
    nodes = graph.nodes()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        work = Normaliser(rules, STEPS_PER_NODE * len(nodes), banned, settled)
        roots = [work.normal(r) for r in graph.roots()]
    finally:
        sys.setrecursionlimit(limit)
    return graph.with_roots(roots), tuple(work.steps)
