"""E-graph: many equal forms of every value at once.

A class is a set of nodes known to be equal; two nodes of one op whose inputs are pairwise equal are
equal (congruence). A computation from parameters alone is one leaf, whatever is inside it. Every
union remembers its reason in a forest over the nodes, from which `proof` reads why two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from refold.ir import Node
from refold.ir.bounds import Interval
from refold.ir.facts import bounds
from refold.ir.graph import is_parametric
from refold.rules.rule import Rule


@dataclass(frozen=True)
class Congruent:
    """Two nodes are equal because their inputs are, pairwise or crosswise."""

    crossed: bool


@dataclass(frozen=True, eq=False)
class Applied:
    """`before` equals `after` by a rule.

    instance: makes the rule's left side as it was found. Other nodes than `before` may be that: the
    root of the pattern and what is below it were looked for among all that was equal to them.
    """

    rule: Rule
    before: Node
    after: Node
    instance: Callable[[], Node] | None = None


Reason: TypeAlias = "Applied | Congruent"


class EGraph:
    """Classes of equal nodes. A class is named by the number of its oldest node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.number: dict[Node, int] = {}
        self.leader: list[int] = []
        self.members: dict[int, list[Node]] = {}
        self.readers: dict[int, list[Node]] = {}
        self.known: dict[Any, Node] = {}
        self.facts: dict[int, Interval] = {}
        self.best_name: dict[int, Node] = {}
        self.forest: dict[Node, tuple[Node, Reason]] = {}
        self._parametric: dict[Node, bool] = {}
        self._by_op: dict[int, dict[str, list[Node]]] = {}  # members, until a class grows
        self._merged: list[int] = []
        self.dynamic = 0  # how many nodes a call would compute, what the budget counts

    # --- what a matcher asks --------------------------------------------------------------------
    def equals(self, node: Node, op: str) -> Sequence[Node]:
        if node not in self.number:
            return (node,) if node.op == op else ()
        i = self.find(node)
        known = self._by_op.get(i)
        if known is None:
            known = self._by_op[i] = {}
            for member in self.members[i]:
                known.setdefault(member.op, []).append(member)
        return known.get(op, ())

    def name(self, node: Node) -> Node:
        return self.best_name[self.find(node)] if node in self.number else node

    def parametric(self, node: Node) -> bool:
        return is_parametric(self.name(node), self._parametric)

    def bounds(self, node: Node) -> Interval:
        return self.facts[self.find(node)] if node in self.number else bounds(node)

    # --- growing --------------------------------------------------------------------------------
    def find(self, node: Node) -> int:
        """The class of a node that was added."""
        i = self.number[node]
        while self.leader[i] != i:
            self.leader[i] = self.leader[self.leader[i]]
            i = self.leader[i]
        return i

    def add(self, root: Node) -> int:
        """Put `root` and what it is computed from into the graph; its class."""
        if root not in self.number:
            for node in self._outside(root):
                self._insert(node)
        return self.find(root)

    def _outside(self, root: Node) -> list[Node]:
        """What of `root` is not yet there, inputs first."""
        order: list[Node] = []
        seen: set[Node] = set()
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
            elif node not in self.number and node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((i, False) for i in reversed(node.inputs))
        return order

    def _insert(self, node: Node) -> None:
        if node in self.number:
            return
        i = len(self.nodes)
        self.nodes.append(node)
        self.number[node] = i
        self.leader.append(i)
        self.members[i] = [node]
        self.readers[i] = []
        self.facts[i] = bounds(node)
        self.best_name[i] = node
        self.dynamic += not is_parametric(node, self._parametric)
        for child in node.inputs:
            self.readers[self.find(child)].append(node)
        key = self.key(node)
        twin = self.known.setdefault(key, node)
        if twin is not node:
            self._union(twin, node, self._congruence(twin, node))
            self.rebuild()

    def children(self, node: Node) -> tuple[Node, ...]:
        """The inputs to be chosen with `node`: none where parameters alone decide it."""
        return () if is_parametric(node, self._parametric) else node.inputs

    def key(self, node: Node) -> Any:
        """Equal for nodes that are equal by congruence."""
        if not node.inputs:
            return node
        classes = [self.find(c) for c in node.inputs]
        if node.row.commutative:
            classes.sort()
        kinds = tuple(type(v) for _, v in node.attrs)
        return (node.op, node.attrs, kinds, tuple(classes), node.shape, node.dtype)

    def union(
        self, a: Node, b: Node, rule: Rule, instance: Callable[[], Node] | None = None
    ) -> bool:
        """Record that `a` equals `b` by `rule`; False if that was known. instance: see Applied."""
        self.add(a)
        self.add(b)
        changed = self._union(a, b, Applied(rule, a, b, instance))
        self.rebuild()
        return changed

    def _union(self, a: Node, b: Node, reason: Reason) -> bool:
        i, j = sorted((self.find(a), self.find(b)))
        if i == j:
            return False
        self._link(a, b, reason)
        self.leader[j] = i
        self._by_op.pop(i, None)
        self._by_op.pop(j, None)
        old = self.members.pop(j)
        keys = {self.key(n) for n in self.members[i]}
        both = self.members[i] + [n for n in old if self.key(n) not in keys]
        # a node computed from its own class is a longer way to the same value: of no use
        self.members[i] = [n for n in both if not self.is_loop(n)] or both
        self.readers[i] += self.readers.pop(j)
        (low, high), (low2, high2) = self.facts[i], self.facts.pop(j)
        self.facts[i] = max(low, low2), min(high, high2)
        other = self.best_name.pop(j)
        if self._is_leaf(other) and not self._is_leaf(self.best_name[i]):
            self.best_name[i] = other
        self._merged.append(i)
        return True

    def is_loop(self, node: Node) -> bool:
        """Is `node` computed from its own class?"""
        i = self.find(node)
        return any(self.find(c) == i for c in node.inputs)

    def _is_leaf(self, node: Node) -> bool:
        return is_parametric(node, self._parametric)

    def rebuild(self) -> None:
        """Restore congruence: nodes whose inputs became equal are equal."""
        while self._merged:
            i = self._merged.pop()
            if self.leader[i] != i:
                continue
            for node in list(self.readers[i]):
                twin = self.known.setdefault(self.key(node), node)
                if twin is not node:
                    self._union(twin, node, self._congruence(twin, node))
                    if self.leader[i] != i:
                        break

    def _congruence(self, a: Node, b: Node) -> Congruent:
        straight = all(
            self.find(x) == self.find(y) for x, y in zip(a.inputs, b.inputs, strict=True)
        )
        return Congruent(not straight)

    # --- why ------------------------------------------------------------------------------------
    def _link(self, a: Node, b: Node, reason: Reason) -> None:
        """Hang b's tree, turned round so that b is its root, under a."""
        node, above, why = b, a, reason
        while True:
            next_up = self.forest.get(node)
            self.forest[node] = (above, why)
            if next_up is None:
                return
            above, node, why = node, next_up[0], next_up[1]

    def proof(
        self, pairs: Iterable[tuple[Node, Node]], whole: bool = True
    ) -> Iterator[tuple[Node, Node, Rule]]:
        """Rule applications that lead from the first of each pair to its second, each once.

        That the left side of one was in the graph has its own reasons, which come before it; not
        where `whole` is false.
        """
        done: set[tuple[Node, Node]] = set()
        applied: set[Applied] = set()
        stack: list[tuple[Node, Node, Rule | None]] = [(a, b, None) for a, b in pairs]
        stack.reverse()
        while stack:
            a, b, rule = stack.pop()
            if rule is not None:
                yield a, b, rule
                continue
            if a is b or (a, b) in done:
                continue
            done.add((a, b))
            todo: list[tuple[Node, Node, Rule | None]] = []
            for x, y, reason in self._path(a, b):
                if isinstance(reason, Applied):
                    if reason not in applied:
                        applied.add(reason)
                        if whole and reason.instance is not None:
                            left = reason.instance()
                            if self.add(left) == self.find(reason.before):
                                todo.append((reason.before, left, None))
                        todo.append((x, y, reason.rule))
                else:
                    ys = y.inputs[::-1] if reason.crossed else y.inputs
                    todo.extend((u, v, None) for u, v in zip(x.inputs, ys, strict=True))
            stack.extend(reversed(todo))

    def _path(self, a: Node, b: Node) -> list[tuple[Node, Node, Reason]]:
        """The forest's edges from `a` to `b`."""
        above = {a}
        up: list[tuple[Node, Node, Reason]] = []
        node = a
        while node in self.forest:
            parent, reason = self.forest[node]
            up.append((node, parent, reason))
            above.add(parent)
            node = parent
        down: list[tuple[Node, Node, Reason]] = []
        node = b
        while node not in above:
            parent, reason = self.forest[node]
            down.append((parent, node, reason))
            node = parent
        meet = node
        first = []
        for edge in up:
            if edge[0] is meet:
                break
            first.append(edge)
        return first + down[::-1]
