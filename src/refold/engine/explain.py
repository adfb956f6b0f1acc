"""Why a result is equal to what it came from: steps in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any

from refold.engine.egraph import EGraph
from refold.engine.extract import charged
from refold.engine.normalise import Rewrite
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric, topological
from refold.ir.literals import bare
from refold.price import Pricer
from refold.rules import Exact
from refold.rules.term import App, Term


@dataclass(frozen=True)
class Step:
    """One rule applied once.

    before, after: the values as short text. forms: both in one text, the longest first. saved:
    seconds a call of this step alone, by charges.
    """

    rule: str
    why: str
    before: str
    after: str
    label: Exact
    saved: float
    forms: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} ({self.label}): {self.before} -> {self.after}. {self.why}"


def explain(rewrites: Iterable[Rewrite], pricer: Pricer) -> tuple[Step, ...]:
    """Rewrites in words. What parameters alone decide is folded, and its form is no step."""
    saving = Saving(pricer)
    return tuple(
        Step(
            r.rule.name,
            r.rule.why,
            short(r.before, 3),
            short(r.after, 3),
            r.rule.exact,
            saving(r.before, r.after),
            tuple(_forms(r.before, r.after)),
        )
        for r in rewrites
        if not is_parametric(r.before, saving.parametric)
    )


def _forms(before: Node, after: Node) -> Iterator[str]:
    """Both values as text, ever shorter, as long as they differ."""
    for depth in (3, 2, 1):
        first, second = (bare(short(n, depth)) for n in (before, after))
        if first != second:
            yield f"{first} -> {second}"


class Saving:
    """Seconds a call by which one value is charged more for than another.

    What both are computed from is looked at up to where they meet: a step changes a few ops of a
    model that may have thousands.
    """

    def __init__(self, pricer: Pricer) -> None:
        self.pricer = pricer
        self.parametric: dict[Node, bool] = {}
        self.depth: dict[Node, int] = {}  # the longest way to a leaf

    def __call__(self, before: Node, after: Node) -> float:
        apart = self._apart(before, after)
        first, second = (charged(nodes, self.pricer) for nodes in apart)
        return first - second

    def _apart(self, first: Node, second: Node) -> tuple[list[Node], list[Node]]:
        """What only the first value needs, and only the second, down to folded parameters.

        The deepest come first, so that all that reads a node has been seen when its turn comes.
        """
        for n in topological((first, second), self.depth):
            self.depth[n] = 1 + max((self.depth[i] for i in n.inputs), default=0)
        order = count()
        readers: dict[Node, set[int]] = {}  # which of the two values a node is needed for
        waiting: list[tuple[int, int, Node]] = []
        lone = 0  # how many of those that wait are needed for one of them
        folded: tuple[dict[Node, None], ...] = ({}, {})
        apart: tuple[list[Node], list[Node]] = ([], [])

        def need(node: Node, sides: set[int]) -> None:
            nonlocal lone
            if is_parametric(node, self.parametric):
                for side in sides:
                    folded[side].setdefault(node)
                return
            known = readers.get(node, set())
            if not known:
                heappush(waiting, (-self.depth[node], next(order), node))
            readers[node] = known | sides
            lone += (len(readers[node]) == 1) - (len(known) == 1)

        need(first, {0})
        need(second, {1})
        while lone:
            node = heappop(waiting)[2]
            sides = readers[node]
            if len(sides) == 1:
                lone -= 1
                (side,) = sides
                apart[side].append(node)
            for i in node.inputs:
                if i.inputs:
                    need(i, sides)
        for side in (0, 1):
            apart[side].extend(n for n in folded[side] if n not in folded[1 - side])
        return apart


def proof(egraph: EGraph, before: Graph, after: Graph, whole: bool = True) -> list[Rewrite]:
    """Applications of rules by which `after` follows from `before`, each once, in order.

    whole: with the reasons why the left sides of these are there.
    """
    pairs = list(zip(before.roots(), after.roots(), strict=True))
    for _, new in pairs:
        egraph.add(new)
    way = [Rewrite(rule, a, b) for a, b, rule in egraph.proof(pairs, whole)]
    return _without_detours(way, {n.op for g in (before, after) for n in g.nodes()})


def _without_detours(way: list[Rewrite], ends: Collection[str]) -> list[Rewrite]:
    """A way, less the steps that make values of an op which neither end has and no step looks for:
    whatever followed from such a value follows from what it was made of.

    ends: the ops of both.
    """
    looked_for = set(chain.from_iterable(_ops(p) for s in way for p in s.rule.patterns))
    for op in sorted({s.after.op for s in way} - looked_for - set(ends)):
        makers = [s for s in way if any(n.op == op for n in _made(s))]
        if all(s.after.op == op for s in makers):
            way = [s for s in way if s not in makers]
    return way


def _made(step: Rewrite) -> list[Node]:
    given = set(topological([step.before]))
    return [n for n in topological([step.after]) if n not in given]


def _ops(pattern: Term) -> Iterator[str]:
    if isinstance(pattern, App):
        yield pattern.op
        yield from chain.from_iterable(map(_ops, pattern.args))


def short(node: Node, depth: int) -> str:
    """A value as text, `depth` ops deep; deeper values are `..`."""
    if node.row.is_named:
        return str(node["name"])
    if node.op == "scalar":
        value = node["value"]
        return f"{value:g}" if isinstance(value, float) else str(value)
    if depth == 0:
        return ".."
    # what is drawn before is no operand
    args = [f"number {node['number']}"] if node.row.draws else []
    args = args or [short(i, depth - 1) for i in node.inputs]
    if node.row.is_arithmetic and node.row.infix is not None:
        return f"({node.row.infix.join(args)})"
    shown = [
        f"{k}={_listed(v, k)}"
        for k, v in node.attrs
        if k in ("axes", "axis", "size", "shape", "length")
    ]
    return f"{node.op}({', '.join(args + shown)})"


def _listed(value: Any, name: str) -> str:
    """An attribute as text; a shape without the ones before it."""
    if not isinstance(value, tuple):
        return str(value)
    while name == "shape" and len(value) > 1 and value[0] == 1:
        value = value[1:]
    return ",".join(map(str, value))
