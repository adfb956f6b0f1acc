"""Why a result is equal to what it came from: steps in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from refold.cost import DeviceModel, work
from refold.engine.egraph import EGraph
from refold.engine.normalise import Rewrite
from refold.ir import Graph, Node, Output
from refold.ir.graph import is_parametric
from refold.rules import Exact


@dataclass(frozen=True)
class Step:
    """One rule applied once.

    before, after: the values as short text. saved: predicted seconds a call, of this step alone.
    """

    rule: str
    why: str
    before: str
    after: str
    label: Exact
    saved: float

    def __str__(self) -> str:
        return f"{self.rule} ({self.label}): {self.before} -> {self.after}. {self.why}"


def explain(rewrites: Iterable[Rewrite], device: DeviceModel) -> tuple[Step, ...]:
    """Rewrites in words. What parameters alone decide is folded, and its form is no step."""
    known: dict[Node, bool] = {}
    return tuple(
        Step(
            r.rule.name,
            r.rule.why,
            short(r.before, 3),
            short(r.after, 3),
            r.rule.exact,
            _alone(r.before, device) - _alone(r.after, device),
        )
        for r in rewrites
        if not is_parametric(r.before, known)
    )


def proof(egraph: EGraph, before: Graph, after: Graph) -> list[Rewrite]:
    """Applications of rules by which `after` follows from `before`, each once, in order."""
    found: list[Rewrite] = []
    seen: set[frozenset[Node]] = set()
    for old, new in zip(before.roots(), after.roots(), strict=True):
        egraph.add(new)
        for a, b, rule in egraph.proof(old, new):
            if frozenset((a, b)) not in seen:
                seen.add(frozenset((a, b)))
                found.append(Rewrite(rule, a, b))
    return found


def _alone(node: Node, device: DeviceModel) -> float:
    return work(Graph((Output(node, node.shape),)), device)


def short(node: Node, depth: int) -> str:
    """A value as text, `depth` ops deep; deeper values are `..`."""
    if node.op in ("input", "param", "state", "constant"):
        return str(node["name"])
    if node.op == "scalar":
        value = node["value"]
        return f"{value:g}" if isinstance(value, float) else str(value)
    if depth == 0:
        return ".."
    args = [short(i, depth - 1) for i in node.inputs]
    sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(node.op)
    if sign:
        return f"({args[0]} {sign} {args[1]})"
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
