"""What was not rewritten, and why: each op of a result, and what each rule for it said.

Rules are asked again at every node of the final graph as it is, without its equal forms. The answer
is for people: it costs one more look at each node, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from refold.engine.explain import Saving, short
from refold.engine.normalise import index, same_type
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric
from refold.price import Pricer
from refold.rules import RULES, Rule
from refold.rules.match import Plain, allowed, candidates, is_safe, replacement

_INSTANCES = 4  # of one rule at one node that are looked at


@dataclass(frozen=True)
class Refusal:
    """Why one rule did not rewrite one value.

    kind: "guard" (its guard or the sizes that it declares do not hold, or cannot be decided),
    "accuracy" (it might lose digits, range or NaN in float32 here, or was given up by what was
    measured), "promise" (it holds for finite values only, and those were not to be assumed),
    "price" (equal, and not cheaper). more: of a price, the seconds a call that it would add; None
    where by itself it would be cheaper, and the whole plan was not. after: what it would become.
    """

    rule: Rule
    kind: str
    more: float | None = None
    after: str = ""


@dataclass(frozen=True)
class Untouched:
    """A value that stayed as it is. rules: how many speak of its op; refusals: of those whose left
    side is there."""

    node: Node
    rules: int
    refusals: tuple[Refusal, ...]


def untouched(
    graph: Graph, pricer: Pricer, *, strict: bool = False, banned: Collection[str] = ()
) -> list[Untouched]:
    """Of each value that a call computes in the final graph; inputs first.

    banned: names of rules that were given up for accuracy.
    """
    by_op = index(r for r in RULES if len(r.patterns) == 1)
    memo: dict[Node, bool] = {}
    view, saving = Plain(), Saving(pricer)
    found = []
    for node in graph.nodes():
        if not node.inputs or not node.is_float or is_parametric(node, memo):
            continue
        rules = by_op.get(node.op, [])
        refused = (r for rule in rules for r in _refusals(rule, node, view, saving, strict, banned))
        found.append(Untouched(node, len(rules), tuple(refused)))
    return found


def _refusals(
    rule: Rule, node: Node, view: Plain, saving: Saving, strict: bool, banned: Collection[str]
) -> Iterator[Refusal]:
    """One at most: the one that came furthest."""
    best: Refusal | None = None
    for number, binding in enumerate(candidates(rule, node, view)):
        if number == _INSTANCES:
            break
        if not allowed(rule, binding):
            best = best or Refusal(rule, "guard")
            continue
        made = replacement(rule, binding)
        if made is None or not same_type(made[0], node) or made[0] is node:
            continue
        after = short(made[0], 3)
        if not is_safe(rule, binding) or rule.name in banned:
            best = Refusal(rule, "accuracy", after=after)
        elif strict and rule.exact == "finite":
            best = Refusal(rule, "promise", after=after)
        else:
            more = -saving(node, made[0])
            best = Refusal(rule, "price", more if more >= 0 else None, after)
            break
    if best is not None:
        yield best
