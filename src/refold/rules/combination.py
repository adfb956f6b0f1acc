"""Linear combinations: a tree of sums, differences and products with parameters, read as its terms.

`2 * a - (b + 3 * c) * s` has the terms a, b and c with the factors 2, -s and -3 * s. The tree stays
what it is: in which order values are added decides how many digits are left. So two terms are taken
out of it, and the others keep their order.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass

from refold.ir import Node, as_scalar, make
from refold.ir.graph import is_parametric, within
from refold.ir.node import rebuild

MOST = 32  # terms of one combination; beyond them a sum within a sum is a term
SUMS = ("add", "sub")


@dataclass(frozen=True)
class Part:
    """One term of a combination: `atom` times `number` times all of `factors`, parameters.

    path: which input of each node leads from the combination to the atom.
    """

    atom: Node
    path: tuple[int, ...] = ()
    number: float = 1.0
    factors: tuple[Node, ...] = ()

    def coefficient(self) -> Node:
        """The number times the factors, as one value."""
        if not self.factors:
            return as_scalar(self.number, self.atom.dtype)
        made, *others = self.factors
        for factor in others:
            made = make("mul", made, factor)
        return made if self.number == 1 else _times(made, self.number)

    def value(self) -> Node:
        """The whole term."""
        if not self.factors and self.number == 1:
            return self.atom
        return make("mul", self.atom, self.coefficient())

    def cancels(self, other: Part) -> bool:
        """Is the other term the negative of this one?"""
        alike = sorted(map(id, self.factors)) == sorted(map(id, other.factors))
        return self.atom is other.atom and alike and self.number == -other.number


_parts: MutableMapping[Node, tuple[Part, ...]] = weakref.WeakKeyDictionary()
_inner: MutableMapping[Node, tuple[Part, ...]] = weakref.WeakKeyDictionary()
_ops: MutableMapping[Node, Mapping[str | None, list[Part]]] = weakref.WeakKeyDictionary()
_parametric: MutableMapping[Node, bool] = weakref.WeakKeyDictionary()


def parts(root: Node) -> tuple[Part, ...]:
    """The terms of a combination, in order. Of any other value, and of a parameter, itself."""
    for node in within([root], lambda n: n not in _parts and _is_combination(n)):
        sides = [_side(node, i) for i in range(2)]
        if sum(map(len, sides)) > MOST:
            longest = max(range(2), key=lambda i: len(sides[i]))
            sides[longest] = (Part(node.inputs[longest], (longest,)),)
        _parts[node] = tuple(_scaled(node, part) for side in sides for part in side)
    return _parts.get(root, (Part(root),))


def _is_combination(node: Node) -> bool:
    if is_parametric(node, _parametric) or not node.is_float:
        return False
    return node.op in SUMS or (node.op == "mul" and _factor(node) is not None)


def _factor(product: Node) -> int | None:
    """Which operand of a product is a parameter, if either is."""
    known = (i for i in (1, 0) if is_parametric(product.inputs[i], _parametric))
    return next(known, None)


def _side(node: Node, i: int) -> tuple[Part, ...]:
    """The terms that an operand adds, their paths from `node`."""
    if node.op == "mul" and i == _factor(node):
        return ()
    child = node.inputs[i]
    inner = _parts.get(child, (Part(child),))
    return tuple(Part(p.atom, (i, *p.path), p.number, p.factors) for p in inner)


def _scaled(node: Node, part: Part) -> Part:
    """The term times what `node` multiplies it with."""
    number, factors = part.number, part.factors
    if node.op == "sub" and part.path[0] == 1:
        number = -number
    elif node.op == "mul":
        factor = node.inputs[1 - part.path[0]]
        value = factor.get("value") if factor.op == "scalar" else None
        if isinstance(value, (int, float)):
            number *= value
        else:
            factors = (*factors, factor)
    return Part(part.atom, part.path, number, factors)


def _wholes(root: Node) -> tuple[Part, ...]:
    """The sums within a combination, each as one term: what reads it may be a term beside it."""
    for node in within([root], lambda n: n not in _inner and _is_combination(n)):
        found = []
        for i, child in enumerate(node.inputs):
            if not _is_combination(child):
                continue
            inner = _inner.get(child, ())
            found += [Part(child, (i,))]
            found += [Part(p.atom, (i, *p.path), p.number, p.factors) for p in inner]
        _inner[node] = tuple(_scaled(node, part) for part in found[:MOST])
    return _inner.get(root, ())


@dataclass(frozen=True)
class Form:
    """What a rule asks of one of two terms: its op, None for any value, and where in it the values
    are that both terms share: of each, which input of each node leads there."""

    op: str | None
    shared: tuple[tuple[int, ...], ...] = ((),)

    def key(self, atom: Node) -> tuple[Node, ...] | None:
        """The shared values of a term; None where it has no such inputs."""
        found = []
        for path in self.shared:
            at = atom
            for i in path:
                if i >= len(at.inputs):
                    return None
                at = at.inputs[i]
            found.append(at)
        return tuple(found)


def has(root: Node, form: Form) -> bool:
    """Is this a sum or difference with a term of a form's op?"""
    return root.op in SUMS and _is_combination(root) and form.op in _by_op(root)


def pairs(root: Node, one: Form, other: Form) -> Iterator[tuple[Part, Part]]:
    """A term of either side of a sum or difference; those of one side have met each other.

    The first of a pair has the form `one`, the second the form `other`: of two forms that differ
    the first may be on either side, and the second, if it may be any value, a whole sum.
    """
    if not has(root, one):
        return
    for side in (0, 1) if one != other else (0,):
        seconds: dict[object, list[Part]] = {}
        terms = _by_op(root).get(other.op, [])
        if one != other and other.op is None and one.op in _by_op(root):
            terms = [*terms, *_wholes(root)]
        for part in terms:
            if part.path[0] != side:
                seconds.setdefault(other.key(part.atom), []).append(part)
        if seconds:
            for first in _by_op(root).get(one.op, ()):
                key = one.key(first.atom)
                if first.path[0] == side and key is not None:
                    yield from ((first, second) for second in seconds.get(key, ()))


def _by_op(root: Node) -> Mapping[str | None, list[Part]]:
    """The terms that are no parameters, by their ops; all of them under None."""
    if root not in _ops:
        found: dict[str | None, list[Part]] = {}
        for part in parts(root):
            if not is_parametric(part.atom, _parametric):
                found.setdefault(part.atom.op, []).append(part)
                found.setdefault(None, []).append(part)
        _ops[root] = found
    return _ops[root]


def without(root: Node, first: Part, second: Part) -> Node | None:
    """What is left of a sum or difference without a term of either side; None where nothing is."""
    terms = sorted((first, second), key=lambda part: part.path[0])
    left, right = (_without(root.inputs[p.path[0]], p.path[1:]) for p in terms)
    return _sum(root, left, right)


def _without(node: Node, path: tuple[int, ...]) -> Node | None:
    above = [node]
    for i in path:
        above.append(above[-1].inputs[i])
    made: Node | None = None
    for parent, i in zip(above[-2::-1], reversed(path), strict=True):
        operands: list[Node | None] = list(parent.inputs)
        operands[i] = made
        if parent.op in SUMS:
            made = _sum(parent, *operands)
        elif made is not None:
            made = rebuild(parent, tuple(o for o in operands if o is not None))
    return made


def _sum(node: Node, left: Node | None, right: Node | None) -> Node | None:
    """The sum or difference of what is there."""
    if left is None or right is None:
        negative = right is not None and node.op == "sub"
        return _times(right, -1.0) if right is not None and negative else left or right
    return rebuild(node, (left, right))


def _times(node: Node, number: float) -> Node:
    return make("mul", node, as_scalar(number, node.dtype))
