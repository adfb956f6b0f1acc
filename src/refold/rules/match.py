"""Find a rule's left side in a graph, and build its right side.

A search asks a `View` which nodes are equal to a given one: the directed pass answers with the
node itself, the e-graph with the node's whole class. So both engines share the rules and this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from refold.ir import Node
from refold.ir.bounds import Interval
from refold.ir.facts import bounds
from refold.ir.graph import is_parametric
from refold.rules import combination
from refold.rules.combination import Part
from refold.rules.find import Binding, View
from refold.rules.rule import Hole, Rule
from refold.rules.term import App, Value, Var


class Plain:
    """The view of a graph in which every node is equal to itself alone."""

    def __init__(self) -> None:
        self._parametric: dict[Node, bool] = {}

    def equals(self, node: Node, op: str) -> tuple[Node, ...]:
        return (node,) if node.op == op else ()

    def name(self, node: Node) -> Node:
        return node

    def parametric(self, node: Node) -> bool:
        known = self._parametric.get(node)
        return is_parametric(node, self._parametric) if known is None else known

    def bounds(self, node: Node) -> Interval:
        return bounds(node)


def matches(rule: Rule, node: Node, view: View) -> Iterator[Binding]:
    """Every way in which `node` is an instance of the rule's left side that the rule may replace:
    its guard holds, and so does what its mark asks for."""
    for found in candidates(rule, node, view):
        if allowed(rule, found) and is_safe(rule, found):
            yield found


def candidates(rule: Rule, node: Node, view: View) -> Iterable[Binding]:
    """Every way in which `node` has the form of the rule's left side, whatever its guard says;
    `()` where it is soon seen that there is none."""
    if rule.terms:
        return _among_terms(rule, node, view) if combination.has(node, rule.forms[0]) else ()
    return rule.finders[0](node, {}, view)


def _among_terms(rule: Rule, node: Node, view: View) -> Iterator[Binding]:
    """Every pair of terms of a combination of which a rule about terms speaks."""
    _, _, rest = rule.two_terms
    for a, b in combination.pairs(node, *rule.forms):
        for found in _of_pair(rule, a, b, view):
            left = combination.without(node, a, b)
            if (left is None) == (rest is None):
                yield found if rest is None else {**found, rest.name: left}


def _of_pair(rule: Rule, a: Part, b: Part, view: View) -> Iterator[Binding]:
    first, second, _ = rule.two_terms
    if isinstance(first, Var):
        if a.cancels(b):
            yield {first.name: a.value()}
        return
    assert isinstance(first, App) and isinstance(second, App)
    (_, s), (_, t) = first.args, second.args
    assert isinstance(s, Var) and isinstance(t, Var)
    one, other = rule.term_finders
    for found in one(a.atom, {}, view):
        for both in other(b.atom, found, view):
            yield {**both, s.name: a.coefficient(), t.name: b.coefficient()}


def match_next(
    rule: Rule, position: int, node: Node, found: Binding, view: View
) -> Iterable[Binding]:
    """Extend a binding by a further left side of a rule that has several."""
    return rule.finders[position](node, found, view)


def allowed(rule: Rule, found: Binding) -> bool:
    """Do the declared sizes and the guard hold? What cannot be decided does not hold."""
    return sizes_agree(rule.holes, found) and _holds(rule, rule.where, found)


def is_safe(rule: Rule, found: Binding) -> bool:
    """Does the rule keep in float32 what its mark says that it may lose?"""
    if rule.safe is None:
        return rule.mark in (None, "range")
    return _holds(rule, rule.safe, found)


def _holds(rule: Rule, condition: Callable[..., bool] | None, found: Binding) -> bool:
    try:
        return condition is None or bool(condition(**arguments(rule, found)))
    except (ValueError, TypeError):
        return False


def replacement(rule: Rule, found: Binding) -> tuple[Node, ...] | None:
    """The right side on the bound values; None where an op does not take them, or where that cannot
    be decided: sizes that vary are not compared."""
    try:
        made = rule.rhs(**arguments(rule, found))
    except (ValueError, TypeError):
        return None
    terms = made if isinstance(made, tuple) else (made,)
    return tuple(t.node for t in terms)


def instance(rule: Rule, found: Binding) -> tuple[Node, ...]:
    """The left side on the bound values."""
    made = rule.lhs(**arguments(rule, found))
    return tuple(t.node for t in (made if isinstance(made, tuple) else (made,)))


def arguments(rule: Rule, found: Mapping[str, Any]) -> Binding:
    return {
        name: found[name] if hole.attribute else Value(found[name])
        for name, hole in rule.holes.items()
    }


def sizes_agree(holes: Mapping[str, Hole], found: Mapping[str, Any]) -> bool:
    known: dict[str, Any] = {}
    spatial_rank = len(found.get("strides", ()))
    for name, hole in holes.items():
        if not hole.dims:
            continue
        wanted, shape = hole.sizes(spatial_rank), found[name].shape
        if hole.is_of_images and any(size != 1 for size in shape[: -len(wanted)]):
            return False
        for letter, size in zip(wanted, shape[-len(wanted) :], strict=True):
            if letter == "_" or (letter.endswith("?") and size == 1):
                continue
            if letter.isdigit():
                if size != int(letter):
                    return False
            elif known.setdefault(letter[0], size) != size:
                return False
    return True
