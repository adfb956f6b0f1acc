"""Grow an e-graph by the rules until nothing is new or the budget is spent.

The budget counts nodes and attempts, not seconds: the same graph gives the same answer on a slow
machine. It is set so that an ordinary machine needs less than half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from refold.engine.egraph import EGraph
from refold.engine.normalise import Ban, Normaliser, index, same_type
from refold.ir import Node
from refold.ir.graph import within
from refold.ir.node import rebuild
from refold.rules.find import Binding
from refold.rules.match import (
    allowed,
    candidates,
    instance,
    is_safe,
    match_next,
    replacement,
)
from refold.rules.rule import Rule
from refold.rules.term import Var


@dataclass(frozen=True)
class Budget:
    """nodes: how many that a call would compute. attempts: how often a rule is tried on a node.
    instances: how often one is found to apply, in any of the equal forms of what it reads; these
    multiply where a chain of linear maps and factors has an end in every order."""

    nodes: int = 4000
    attempts: int = 40_000
    instances: int = 5_000

    @staticmethod
    def of(size: int) -> Budget:
        """For a graph of so many nodes: a loop over a thousand steps is one, written out."""
        least = Budget()
        return Budget(
            max(least.nodes, 4 * size),
            max(least.attempts, 40 * size),
            max(least.instances, 5 * size),
        )


@dataclass(frozen=True)
class Application:
    """A rule at nodes `old`, which become `new`."""

    rule: Rule
    old: tuple[Node, ...]
    new: tuple[Node, ...]
    found: Binding

    def left(self, i: int) -> Callable[[], Node]:
        """What makes the rule's i-th left side, of the values that were found for its variables."""
        return lambda: instance(self.rule, self.found)[i]


# A pattern is at most this many ops deep below its root: how far a change can wake up readers.
DEPTH = 2
# With how many of the values that come after it a value is merged. Of many maps of one input, all
# pairs would be as many as the square of their number; each pair saves the same.
NEIGHBOURS = 2


def saturate(
    egraph: EGraph, rules: Iterable[Rule], budget: Budget, banned: Collection[Ban] = frozenset()
) -> None:
    """Apply every rule everywhere, round by round, each node again when its inputs change."""
    # a rule with a predicate is for the directed pass alone
    by_op = index(r for r in rules if not callable(r.simplify) and len(r.patterns) == 1)
    directed = Normaliser(rules, budget.attempts, banned)
    woken = list(egraph.nodes)
    seen: set[tuple[object, ...]] = set()
    attempts = instances = 0
    while woken:
        before = len(egraph.nodes)
        found: list[Application] = []
        for node in woken:
            if not node.is_float or egraph.parametric(node) or egraph.is_loop(node):
                continue
            for rule in by_op.get(node.op, ()):
                if banned and _is_banned(rule, node, banned, egraph):
                    continue
                attempts += 1
                ways = candidates(rule, node, egraph)
                if ways == ():  # as nearly always
                    continue
                room = budget.instances - instances
                new = list(islice(_applications(rule, node, ways, seen), room))
                instances += len(new)
                found.extend(new)
            if attempts > budget.attempts or instances >= budget.instances:
                break
        changed: list[Node] = []
        for application in found:
            for i, a in enumerate(application.old):
                made = _parameters(egraph, directed, application.new[i])
                if egraph.union(a, made, application.rule, application.left(i)):
                    changed.append(a)
            if egraph.dynamic > budget.nodes:
                return
        if attempts > budget.attempts or instances >= budget.instances:
            return
        woken = _wake(egraph, changed, egraph.nodes[before:])


def _is_banned(rule: Rule, node: Node, banned: Collection[Ban], egraph: EGraph) -> bool:
    """Is a rule banned at a node, or at one that is equal to it?"""
    return any(
        name == rule.name
        and at is not None
        and at in egraph.number
        and egraph.find(at) == egraph.find(node)
        for name, at in banned
    )


def _parameters(egraph: EGraph, directed: Normaliser, node: Node) -> Node:
    """`node` with its new parameter terms in normal form: one leaf for each, not one a way."""
    done: dict[Node, Node] = {}

    def known(i: Node) -> Node:
        return i if i in egraph.number else directed.normal(i)

    for n in within([node], lambda n: n not in egraph.number and not egraph.parametric(n)):
        done[n] = rebuild(n, tuple(done[i] if i in done else known(i) for i in n.inputs))
    return done[node] if node in done else known(node)


def merge(egraph: EGraph, rules: Iterable[Rule]) -> None:
    """Apply the rules with two left sides once, to the nodes that are there.

    Once, because what is merged could be merged with its own parts without end.
    """
    by_op = index(r for r in rules if len(r.patterns) == 2)
    found = [
        application
        for node in list(egraph.nodes)
        for rule in by_op.get(node.op, ())
        if node.is_float and not egraph.parametric(node)
        for both, other in _pairs(rule, node, egraph)
        for application in _apply(rule, (node, other), both)
    ]
    for application in found:
        for i, (a, b) in enumerate(zip(application.old, application.new, strict=True)):
            egraph.union(a, b, application.rule, application.left(i))


def _applications(
    rule: Rule, node: Node, ways: Iterable[Binding], seen: set[tuple[object, ...]]
) -> Iterator[Application]:
    """The new ones: a node that is woken again has most of its instances from before, and what a
    guard said of them is what it says."""
    for found in ways:
        instance = (rule.name, node, *found.values())
        if instance not in seen:
            seen.add(instance)
            if allowed(rule, found) and is_safe(rule, found):
                yield from _apply(rule, (node,), found)


def _apply(rule: Rule, old: tuple[Node, ...], found: Binding) -> Iterator[Application]:
    new = replacement(rule, found)
    if new is None or not all(same_type(a, b) for a, b in zip(new, old, strict=True)):
        return
    yield Application(rule, old, new, found)


def _pairs(rule: Rule, node: Node, egraph: EGraph) -> Iterator[tuple[Binding, Node]]:
    """Instances of a rule with two left sides: partners are readers of what both read, the next
    `NEIGHBOURS` of them."""
    second = rule.patterns[1]
    shared = [a.name for a in second.args if isinstance(a, Var)]
    for first in match_next(rule, 0, node, {}, egraph):
        pivot = next(first[name] for name in shared if name in first)
        room = NEIGHBOURS
        for other in list(egraph.readers[egraph.find(pivot)]):
            # each pair once, in the order in which the nodes came
            if other.op != second.op or egraph.number[other] <= egraph.number[node]:
                continue
            if egraph.find(other) == egraph.find(node):
                continue
            found = [
                both
                for both in match_next(rule, 1, other, first, egraph)
                if allowed(rule, both) and is_safe(rule, both)
            ]
            yield from ((both, other) for both in found)
            room -= bool(found)
            if not room:
                break


def _wake(egraph: EGraph, changed: list[Node], new: list[Node]) -> list[Node]:
    """What a round must look at again: new nodes, and readers of classes that grew."""
    awake: dict[Node, None] = dict.fromkeys(new)
    front = {egraph.find(n) for n in (*changed, *new)}
    seen = set(front)
    for c in sorted(front):
        awake.update(dict.fromkeys(egraph.members[c]))
    for _ in range(DEPTH):
        above: set[int] = set()
        for c in sorted(front):
            for reader in egraph.readers[c]:
                awake.setdefault(reader)
                above.add(egraph.find(reader))
        front = above - seen
        seen |= front
    return list(awake)
