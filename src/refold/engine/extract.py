"""Choose one node for every class so that the whole has the least charge, shared values once.

The exact problem is hard. Several good starts (the original, the normal form, the cheapest tree)
are improved by single swaps with reference counts; the answer is never worse than any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from refold.engine.egraph import EGraph
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric, topological, within
from refold.ir.node import rebuild
from refold.price import Charge, Pricer

Choice = dict[int, Node]
ROUNDS = 4
SWAPS = 20_000


@dataclass
class _Charges:
    """Seconds of each node, and the memory passes that several nodes may share. Nothing joins the
    e-graph meanwhile."""

    egraph: EGraph
    pricer: Pricer

    def __post_init__(self) -> None:
        self.known: dict[Node, Charge] = {}
        self._alone: dict[Node, tuple[float, tuple[int, ...]]] = {}

    def alone(self, node: Node) -> tuple[float, tuple[int, ...]]:
        """Seconds of a node that shares nothing, and the classes of its inputs."""
        known = self._alone.get(node)
        if known is None:
            extra, find = self.shared(node), self.egraph.find
            seconds = self(node) + (extra[1] if extra else 0.0)
            known = seconds, tuple(find(i) for i in self.egraph.children(node))
            self._alone[node] = known
        return known

    def _of(self, node: Node) -> Charge:
        known = self.known.get(node)
        if known is None:
            known = self.known[node] = self.pricer.charges(node)
        return known

    def __call__(self, node: Node) -> float:
        return self._of(node).seconds

    def shared(self, node: Node) -> tuple[object, float] | None:
        """A pass over memory that this node needs and that others may need too."""
        shares = self._of(node).shares
        if shares is None:
            return None
        return (self.egraph.find(shares.value), shares.axes), shares.seconds


def charged(nodes: Iterable[Node], pricer: Pricer) -> float:
    """Seconds that nodes add to a call by their charges, shared passes once."""
    found = [pricer.charges(n) for n in nodes]
    passes = {(s.value, s.axes): s.seconds for _, s in found if s is not None}
    return sum(c.seconds for c in found) + sum(passes.values())


def computed(graph: Graph) -> list[Node]:
    """What a call computes, and the folded parameters that it reads, not their insides."""
    memo: dict[Node, bool] = {}
    called = within(graph.roots(), lambda n: not is_parametric(n, memo))
    read = (i for n in called for i in n.inputs)
    return [*called, *dict.fromkeys(n for n in (*read, *graph.roots()) if is_parametric(n, memo))]


def extract(egraph: EGraph, roots: list[Node], seeds: list[Graph], pricer: Pricer) -> list[Graph]:
    """Candidates, one from each start, as graphs over the same outputs as the seeds."""
    charges = _Charges(egraph, pricer)
    cheapest = _cheapest_trees(egraph, charges)
    found = []
    for start in (*[_choice_of(egraph, s) for s in seeds], {}):
        choice = {**cheapest, **start}
        if not _acyclic(egraph, choice, roots):
            continue
        improved = _Swaps(egraph, charges, choice, roots).run()
        if not _acyclic(egraph, improved, roots):
            continue
        found.append(seeds[0].with_roots(build(egraph, improved, roots)))
    return found


def build(egraph: EGraph, choice: Choice, roots: Iterable[Node]) -> list[Node]:
    """The roots computed by the chosen nodes."""
    made: dict[int, Node] = {}
    stack: list[tuple[int, bool]] = [(egraph.find(r), False) for r in roots]
    while stack:
        c, ready = stack.pop()
        if c in made:
            continue
        children = egraph.children(choice[c])
        if ready or not children:
            inputs = tuple(made[egraph.find(i)] for i in children)
            made[c] = rebuild(choice[c], inputs) if children else choice[c]
        else:
            stack.append((c, True))
            stack.extend((egraph.find(i), False) for i in children)
    return [made[egraph.find(r)] for r in roots]


def _choice_of(egraph: EGraph, graph: Graph) -> Choice:
    """The choice that a graph in the e-graph stands for; the first of equal nodes: no cycles."""
    choice: Choice = {}
    for node in topological(graph.roots()):
        if node in egraph.number:
            choice.setdefault(egraph.find(node), node)
    return choice


def _cheapest_trees(egraph: EGraph, charges: _Charges, there: Iterable[int] = ()) -> Choice:
    """The cheapest node of every class when nothing is shared but the classes that are `there`,
    which cost nothing and are left out; ends when no class improves."""
    free = set(there)
    total = dict.fromkeys(free, 0.0)
    choice: Choice = {}
    queue = sorted(egraph.members.keys() - free)
    while queue:
        again: dict[int, None] = {}
        for c in queue:
            for node in egraph.members[c]:
                cost, inputs = charges.alone(node)
                if not all(i in total for i in inputs):
                    continue
                cost += sum(total[i] for i in inputs)
                if c not in total or cost < total[c] * (1 - 1e-12):
                    total[c] = cost
                    choice[c] = node
                    again.update(dict.fromkeys(egraph.find(r) for r in egraph.readers[c]))
        queue = sorted(again.keys() - free)
    return choice


def _acyclic(egraph: EGraph, choice: Choice, roots: Iterable[Node]) -> bool:
    """Is no class that `roots` need computed from itself?"""
    state: dict[int, int] = {}  # 1: its inputs are being visited, 2: they have been
    stack: list[tuple[int, bool]] = [(egraph.find(r), False) for r in roots]
    while stack:
        c, ready = stack.pop()
        if ready:
            state[c] = 2
        elif c not in state:
            state[c] = 1
            stack.append((c, True))
            for i in egraph.children(choice[c]):
                child = egraph.find(i)
                if state.get(child) == 1:
                    return False
                if child not in state:
                    stack.append((child, False))
    return True


class _Swaps:
    """A choice with reference counts, changed one class at a time while that saves."""

    def __init__(
        self, egraph: EGraph, charges: _Charges, choice: Choice, roots: list[Node]
    ) -> None:
        self.egraph = egraph
        self.charges = charges
        self.choice = choice
        self.count: dict[int, int] = {}
        self.passes: dict[object, int] = {}
        self.total = 0.0
        self.roots = [egraph.find(r) for r in roots]
        for r in self.roots:
            self._take(r)

    def run(self) -> Choice:
        tried = 0
        for _ in range(ROUNDS):
            improved = False
            # what is not computed yet is best made of what is
            self.choice.update(_cheapest_trees(self.egraph, self.charges, self._order()))
            for c in self._order():
                if not self.count.get(c) or len(self.egraph.members[c]) < 2:
                    continue
                for node in self.egraph.members[c]:
                    tried += 1
                    if tried > SWAPS:
                        return self.choice
                    improved |= self.count.get(c, 0) > 0 and self._swap(c, node)
            improved |= self._swap_together()
            if not improved:
                break
        return self.choice

    def _swap_together(self) -> bool:
        """Take all cuts of one value at once: a merged product pays only for all its parts."""
        parts: dict[int, dict[int, Node]] = {}
        for c in self._order():
            for node in self.egraph.members[c]:
                if node.op == "slice" and node is not self.choice[c]:
                    source = self.egraph.find(node.inputs[0])
                    parts.setdefault(source, {}).setdefault(c, node)
        improved = False
        for part in parts.values():
            improved |= len(part) > 1 and self._try(part)
        return improved

    def _try(self, new: Mapping[int, Node]) -> bool:
        """Take all of `new` if the whole becomes cheaper."""
        if any(not self.count.get(c) or self._needs(n, c) for c, n in new.items()):
            return False
        before = self.total
        old = {c: self.choice[c] for c in new}
        for c, node in new.items():
            self._replace(c, node)
        if self.total < before * (1 - 1e-9):
            return True
        for c, node in old.items():
            self._replace(c, node)
        self.total = before
        return False

    def _replace(self, c: int, node: Node) -> None:
        if self.count.get(c):
            self._change(c, node)
        else:
            self.choice[c] = node

    def _order(self) -> list[int]:
        return sorted((c for c, n in self.count.items() if n), reverse=True)

    def _swap(self, c: int, new: Node) -> bool:
        """Take `new` for class `c` if the whole becomes cheaper."""
        old = self.choice[c]
        if new is old:
            return False
        before = self.total
        self._change(c, new)
        if self.total < before * (1 - 1e-9) and not self._needs(new, c):
            return True
        self._change(c, old)
        self.total = before
        return False

    def _change(self, c: int, new: Node) -> None:
        """Let `new` stand for class `c`: what it shares with the node before keeps its place.

        Taken first and released then, or all that the class is computed from would leave and
        enter again for every node that is tried.
        """
        old = self.choice[c]
        self._put(new)
        self.choice[c] = new
        self._remove(old)

    def _needs(self, node: Node, c: int) -> bool:
        """Would `node` be computed from class `c`?"""
        find, choice = self.egraph.find, self.choice
        stack = [find(i) for i in self.egraph.children(node)]
        seen = set(stack)
        while stack:
            d = stack.pop()
            if d == c:
                return True
            for i in self.egraph.children(choice[d]):
                child = find(i)
                if child not in seen:
                    seen.add(child)
                    stack.append(child)
        return False

    def _take(self, c: int) -> None:
        stack = [c]
        while stack:
            c = stack.pop()
            n = self.count.get(c, 0)
            self.count[c] = n + 1
            if n == 0:
                stack.extend(self._enter(self.choice[c]))

    def _release(self, c: int) -> None:
        stack = [c]
        while stack:
            c = stack.pop()
            self.count[c] -= 1
            if self.count[c] == 0:
                stack.extend(self._leave(self.choice[c]))

    def _enter(self, node: Node) -> list[int]:
        self.total += self.charges(node)
        extra = self.charges.shared(node)
        if extra:
            n = self.passes.get(extra[0], 0)
            self.passes[extra[0]] = n + 1
            self.total += extra[1] if n == 0 else 0.0
        return [self.egraph.find(i) for i in self.egraph.children(node)]

    def _leave(self, node: Node) -> list[int]:
        self.total -= self.charges(node)
        extra = self.charges.shared(node)
        if extra:
            self.passes[extra[0]] -= 1
            self.total -= extra[1] if self.passes[extra[0]] == 0 else 0.0
        return [self.egraph.find(i) for i in self.egraph.children(node)]

    def _put(self, node: Node) -> None:
        for c in self._enter(node):
            self._take(c)

    def _remove(self, node: Node) -> None:
        for c in self._leave(node):
            self._release(c)
