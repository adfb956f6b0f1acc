"""Rules that follow from facts of ops: terms of a linear combination that become one term.

An op that is linear in some operands, the others held, takes a combination of them:
`f(x, v) * s + f(x, w) * t` is `f(x, v * s + w * t)`. The factors s and t are one number each, or
vary along an axis of the result that an axis of the operand carries. A product with a parameter is
such an op itself: `x * s + x * t` is `x * (s + t)`. Each instance is a rule like any other, and is
proved as one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from refold.ir import OPS, Kind, Op
from refold.ir.op import Rounding
from refold.ir.ops import ATTENTIONS
from refold.ir.shapes import RANK
from refold.rules.image import is_zero, meets, swapped
from refold.rules.rule import Rule
from refold.rules.safety import is_map, is_tame, may_be_masked
from refold.rules.term import AXES, Term, apply, broadcasts_into, constant, permute

Values = Mapping[str, Any]  # of a rule's variables, by their names
Factor = Term | float

# Of operands that are spread over more elements, the result is that of the operands, spread: terms
# of these ops may be of different shapes.
_SPREADING = ("linear", "mean")
_OF_IMAGES = {"strides": (1,)}  # attributes, where it matters only which axes they speak of


class _Law:
    """An op, and a group of operands in which it is linear: the rules about two of its terms.

    Their variables: the operands, those of the second term with a 2 behind their names, the
    attributes, the factors s and t, and r, the other terms.
    """

    def __init__(self, op: Op, group: tuple[int, ...]) -> None:
        self.op, self.group = op, group
        self.words = op.operands or ("x",)
        self.names = [_name(word) for word in self.words]
        self.varied = [self.names[i] for i in group]
        self.carried = op.carries(_OF_IMAGES, group)

    def rules(self) -> Iterator[Rule]:
        yield self._of_two("sum", "add", 1.0)
        yield self._of_two("difference", "sub", -1.0)
        # What computes sums has rules that take them apart, so that there the price decides.
        if self.op.is_contraction:
            yield self._of_terms("terms", ())
            yield self._of_terms("terms-among-others", ("r",))

    def _of_two(self, name: str, op: str, sign: float) -> Rule:
        """`f(v) + f(w)` or `f(v) - f(w)`, for the e-graph."""
        return self._rule(
            name,
            (),
            lambda v: apply(op, self._term(v), self._term(v, "2")),
            lambda v: self._together(v, 1.0, sign),
            where=None if self.op.name in _SPREADING else self._are_alike,
            simplify=False,
        )

    def _of_terms(self, name: str, others: tuple[str, ...]) -> Rule:
        """`f(v) * s + f(w) * t`, or `(f(v) * s + r) + f(w) * t`, in a combination."""
        sizes = self._sizes_of_factors()
        return self._rule(
            name,
            (f"s[{sizes}]!", f"t[{sizes}]!", *others),
            lambda v: two(v, self._term(v), self._term(v, "2")),
            lambda v: with_others(v, self._together(v, v["s"], v["t"])),
            where=None if self.op.name in _SPREADING else self._may_be_combined,
            mark="range" if self.carried else None,
            terms=True,
        )

    def _rule(
        self, name: str, more: tuple[str, ...], lhs: Function, rhs: Function, **facts: Any
    ) -> Rule:
        second = (self.words[i].replace(self.names[i], f"{self.names[i]}2", 1) for i in self.group)
        return rule_of(
            f"{self.op.name}-{name}-in-{'-and-'.join(self.varied)}",
            (*self.words, *second, *more, *(f"@{a}" for a in self.op.attrs)),
            lhs,
            rhs,
            f"By linearity in {' and '.join(self.varied)}, terms of {self.op.name} that share the"
            " rest are one.",
            **facts,
        )

    def _sizes_of_factors(self) -> str:
        """The sizes of a factor: the operand's along the carried axis, and else one."""
        if self.carried is None:
            return ",".join("1" * RANK)
        along, (into, *_) = self.carried
        sizes = self.words[self.group[0]].split("[")[1].rstrip("]").split(",")
        if "..." in sizes:
            return f"1,{sizes[into]}?,1..."
        return ",".join(f"{sizes[into]}?" if axis == along else "1" for axis in AXES)

    def _term(self, v: Values, second: str = "") -> Term:
        """The op on the operands of the first term or of the second."""
        return self._on(v, [v[n + second] if n in self.varied else v[n] for n in self.names])

    def _together(self, v: Values, s: Term | float, t: Term | float) -> Term:
        """The op on the combination of both terms' operands."""
        along, into = self.op.carries(v, self.group) or (-1, (-1,) * len(self.group))
        operands = [v[n] for n in self.names]
        for i, name, axis in zip(self.group, self.varied, into, strict=True):
            a, b = (factor_of(f, along, axis) for f in (s, t))
            operands[i] = weighted(v[name], a, v[f"{name}2"], b)
        return self._on(v, operands)

    def _on(self, v: Values, operands: Sequence[Term]) -> Term:
        return apply(self.op.name, *operands, **{a: v[a] for a in self.op.attrs})

    def _are_alike(self, v: Values) -> bool:
        name = self.varied[0]
        return bool(v[name].shape == v[f"{name}2"].shape)

    def _may_be_combined(self, v: Values) -> bool:
        """Are the operands of one shape, and is a NaN of a factor seen in every place?

        A number is none; a parameter has to meet some of the image for every place of the result.
        """
        if not self._are_alike(v):
            return False
        if all(number_of(v[f]) is not None for f in "st"):
            return bool(self.carried) or all(is_tame(v[f]) for f in "st")
        window = v["strides"], v["paddings"], v["dilations"]
        return bool(self.carried) and meets(v["x"], v["w"], *window)


Function = Callable[[Values], Any]


def rule_of(
    name: str, words: Sequence[str], lhs: Function, rhs: Function, why: str, **facts: Any
) -> Rule:
    """A rule whose functions take all of its variables at once. One about terms is taken by the
    directed pass wherever it applies."""
    names = [_name(word) for word in words]
    if facts.get("terms"):
        facts.setdefault("simplify", lambda v: True)
    facts = {k: _taking(names, f) if callable(f) else f for k, f in facts.items()}
    sides = _taking(names, lhs), _taking(names, rhs)
    return Rule(name, " ".join(words), *sides, "reals", why, **facts)


def _name(word: str) -> str:
    """The name of a variable of a signature."""
    return re.sub(r"^@|\[.*|[!+?#-]+$", "", word)


def _taking(names: Sequence[str], body: Function) -> Callable[..., Any]:
    """The function of parameters of these names that gives `body` all of them."""

    def call(**values: Any) -> Any:
        return body(values)

    parameters = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def two(v: Values, first: Term, second: Term) -> Term:
    """Two terms, the others between them."""
    last: Term = second * v["t"]
    return with_others(v, first * v["s"]) + last


def with_others(v: Values, made: Term) -> Term:
    others: Term | None = v.get("r")
    return made if others is None else made + others


def weighted(v: Term, s: Factor, w: Term, t: Factor) -> Term:
    """`v * s + w * t`, without a product with one, nor with a number below zero if one is above."""
    if is_zero(v) and is_zero(w):
        return v
    if isinstance(t, float) and t < 0:
        return times(v, s) - times(w, -t)
    if isinstance(s, float) and s < 0:
        return times(w, t) - times(v, -s)
    return times(v, s) + times(w, t)


def times(v: Term, s: Factor) -> Term:
    return v if s == 1.0 else v * s


def factor_of(s: Term | float, along: int, into: int) -> Factor:
    """A factor of a result that varies along one of its axes, as one of an operand."""
    if isinstance(s, float):
        return s
    if (number := number_of(s)) is not None:
        return number
    return s if along == into or s.shape[along] == 1 else permute(s, swapped(along, into))


def number_of(s: Term) -> float | None:
    """The value of a Python number; None for a parameter, and for the size of an input."""
    value = s.node.get("value") if s.node.op == "scalar" else None
    return float(value) if isinstance(value, (bool, int, float)) else None


def _multiple(v: Values) -> Term:
    """The value times the sum of both factors."""
    x: Term = v["x"]
    s, t = (number_of(v[f]) for f in "st")
    return x * (s + t) if s is not None and t is not None else x * (v["s"] + v["t"])


# Of a value that is no product, a sum among others may lose digits in another order.
VALUES = (
    Rule(
        "opposite-values",
        "x",
        lambda x: x - x,
        lambda x: constant(0, x),
        "finite",
        "A value and its negative are zero.",
        simplify=lambda x: True,
        mark="unsafe",
        safe=lambda x: not may_be_masked(x),
        terms=True,
    ),
    Rule(
        "opposite-terms",
        "x r",
        lambda x, r: (x + r) - x,
        lambda x, r: r,
        "finite",
        "A value and its negative cancel.",
        where=lambda x, r: broadcasts_into(x, r),
        simplify=lambda x, r: True,
        mark="unsafe",
        safe=lambda x, r: not may_be_masked(x),
        terms=True,
    ),
    rule_of(
        "value-terms",
        ("x", "s!", "t!"),
        lambda v: two(v, v["x"], v["x"]),
        _multiple,
        "Two multiples of a value are one.",
        terms=True,
    ),
    rule_of(
        "value-terms-among-others",
        ("x", "s!", "t!", "r"),
        lambda v: two(v, v["x"], v["x"]),
        lambda v: with_others(v, _multiple(v)),
        "Two multiples of a value are one, also where others are added to them.",
        mark="cancels",
        safe=lambda v: is_map(v["x"]),
        terms=True,
    ),
)


def _laws() -> Iterator[_Law]:
    """Of each op that computes, for each group of operands in which it is linear.

    What only moves elements passes all pointwise ops, by rules of its own. Of attention, whose
    operands have no names in rules, there are none: it is one kernel.
    """
    for op in OPS.values():
        if (
            op.name not in ATTENTIONS
            and op.kind is not Kind.POINTWISE
            and op.rounding is not Rounding.NONE
        ):
            yield from (_Law(op, group) for group in op.linear_in)


RULES = (*VALUES, *(rule for law in _laws() for rule in law.rules()))
