"""A pattern as a function that finds it in a graph.

Most nodes are no instance of most patterns, and most of a search is to see that. So a pattern is
read once, and its function asks first what costs least: which ops are there at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from refold.ir import OPS, Node
from refold.ir.bounds import Interval
from refold.rules.term import App, Num, Term, Var

Binding: TypeAlias = dict[str, Any]


class View(Protocol):
    """What a search must know about a graph."""

    def equals(self, node: Node, op: str) -> Sequence[Node]:
        """Nodes of an op that are known to be equal to `node`, itself among them."""
        ...

    def name(self, node: Node) -> Node:
        """One node that stands for all that are equal to `node`."""
        ...

    def parametric(self, node: Node) -> bool: ...

    def bounds(self, node: Node) -> Interval: ...


class Variable(Protocol):
    """What a variable asks of its value; see rule.py's Hole."""

    @property
    def parametric(self) -> bool: ...
    @property
    def nonnegative(self) -> bool: ...
    @property
    def nonpositive(self) -> bool: ...


# every way in which a node is an instance, each with what was found before
Finder: TypeAlias = "Callable[[Node, Binding, View], Iterable[Binding]]"
# whether a node may be an instance at all; None: any may
Test: TypeAlias = "Callable[[Node, View], bool] | None"


def finder(term: Term, holes: Mapping[str, Variable]) -> Finder:
    """The function that finds a pattern. holes: what its variables ask, by their names."""
    if isinstance(term, Var):
        return _variable(term.name, holes[term.name])
    if isinstance(term, Num):
        return _number(term)
    assert isinstance(term, App)
    return _application(term, holes)


def _variable(name: str, hole: Variable) -> Finder:
    parametric, nonnegative, nonpositive = hole.parametric, hole.nonnegative, hole.nonpositive

    def find(node: Node, found: Binding, view: View) -> Iterable[Binding]:
        known = found.get(name)
        if known is not None:
            return (found,) if view.name(known) is view.name(node) else ()
        if parametric and not view.parametric(node):
            return ()
        if nonnegative and not view.bounds(node)[0] >= 0:
            return ()
        if nonpositive and not view.bounds(node)[1] <= 0:
            return ()
        return ({**found, name: view.name(node)},)

    return find


def _number(term: Num) -> Finder:
    def find(node: Node, found: Binding, view: View) -> Iterable[Binding]:
        return (found,) if node.op == "scalar" and node["value"] == term.value else ()

    return find


def _application(term: App, holes: Mapping[str, Variable]) -> Finder:
    op, attrs = term.op, term.attrs
    inner = tuple(finder(a, holes) for a in term.args)
    tests = tuple(_test(a, holes) for a in term.args)
    turns = len(inner) == 2 and OPS[op].commutative

    def find(node: Node, found: Binding, view: View) -> Iterable[Binding]:
        ways = []
        for same in view.equals(node, op):
            inputs = same.inputs
            if len(inputs) != len(inner):
                continue
            if _may_be(inputs, tests, view):
                ways.append((same, inputs))
            if turns and inputs[0] is not inputs[1] and _may_be(inputs[::-1], tests, view):
                ways.append((same, inputs[::-1]))
        return along(ways, found, view) if ways else ()

    def along(
        ways: Iterable[tuple[Node, tuple[Node, ...]]], found: Binding, view: View
    ) -> Iterator[Binding]:
        for node, inputs in ways:
            known = _with_attributes(attrs, node, found)
            if known is not None:
                yield from _of_inputs(inner, inputs, known, view)

    return find


def _test(term: Term, holes: Mapping[str, Variable]) -> Test:
    if isinstance(term, App):
        op = term.op
        return lambda node, view: bool(view.equals(node, op))
    if isinstance(term, Num):
        return lambda node, view: node.op == "scalar"
    if isinstance(term, Var) and holes[term.name].parametric:
        return lambda node, view: view.parametric(node)
    return None


def _may_be(inputs: Sequence[Node], tests: Sequence[Test], view: View) -> bool:
    for test, node in zip(tests, inputs, strict=True):
        if test is not None and not test(node, view):
            return False
    return True


def _with_attributes(
    attrs: Sequence[tuple[str, Any]], node: Node, found: Binding
) -> Binding | None:
    """What was found and a node's attributes; None where those are others than were wanted."""
    if not attrs:
        return found
    found = dict(found)
    for (_, wanted), (_, value) in zip(attrs, node.attrs, strict=True):
        expected = found.setdefault(wanted.name, value) if isinstance(wanted, Var) else wanted
        if expected != value or type(expected) is not type(value):
            return None
    return found


def _of_inputs(
    inner: Sequence[Finder], inputs: Sequence[Node], found: Binding, view: View
) -> Iterable[Binding]:
    if len(inner) == 1:
        return inner[0](inputs[0], found, view)
    if len(inner) == 2:
        one, other = inner
        second = inputs[1]
        return (
            both for first in one(inputs[0], found, view) for both in other(second, first, view)
        )
    partial: list[Binding] = [found]
    for find, child in zip(inner, inputs, strict=True):
        partial = [f for p in partial for f in find(child, p, view)]
    return partial
