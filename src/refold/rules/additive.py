"""What adds takes a combination apart: sums, means, pools and running sums of shifts and factors.

`f(x + b)` is `f(x) + f(b)` and `f(x * s)` is `f(x) * s`, where s is the same for all elements that
f adds. A shift that is the same for all of them comes out as often as f adds it: once of a mean, as
often as there are elements of a sum. Which axes those are is a fact of an op, so that the rules of
all such ops are made from one row of facts each. Each instance is a rule like any other, and is
proved as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from refold.ir import OPS
from refold.rules.image import spatial_axes
from refold.rules.rule import Rule
from refold.rules.safety import is_map, is_nonzero
from refold.rules.schemas import Values, rule_of
from refold.rules.term import (
    AXES,
    Term,
    apply,
    broadcast_sum,
    broadcasts_into,
    constant,
    cumsum,
    is_unit_along,
)


@dataclass(frozen=True)
class _Additive:
    """An op that adds elements of one operand, each times a number that its attributes give.

    name: in the names of its rules. noun: what it makes, in sentences. often: there, how often a
    shift comes out. along: the axes along which it adds. even: what it makes of a shift b that is
    the same along these, without b in all places: b times how often it is added. sizes: of x and
    b, where a signature says them. is_even: what `even` asks for beside that. shifts: where
    `f(x + b)` of a parameter b is the sum of both. of_shift: what it makes of such a b, unless that
    is `f(b)`. even_is_parameter: even shifts come out of parameters only. goes_first: they come out
    wherever there are any; else the price decides.
    """

    op: str
    name: str
    noun: str
    often: str
    along: Callable[[Values], tuple[int, ...]]
    even: Callable[[Values], Term]
    sizes: tuple[str, str] = ("", "")
    is_even: Callable[[Values], bool] | None = None
    shifts: Callable[[Values], bool] | None = None
    of_shift: Callable[[Values], Term] | None = None
    even_is_parameter: bool = False
    goes_first: bool = True

    def rules(self) -> Iterator[Rule]:
        x, b = self.sizes
        yield self._rule(
            "scaled",
            (f"x{x}", "s"),
            lambda v: self._of(v, v["x"] * v["s"]),
            lambda v: self._of(v, v["x"]) * v["s"],
            f"The {self.noun} of values scaled alike is their {self.noun}, scaled.",
            where=lambda v: is_unit_along(v["s"], self.along(v)),
        )
        yield self._rule(
            "divided",
            (f"x{x}", "s"),
            lambda v: self._of(v, v["x"] / v["s"]),
            lambda v: self._of(v, v["x"]) / v["s"],
            f"The {self.noun} of values divided alike is their {self.noun}, divided.",
            where=lambda v: is_unit_along(v["s"], self.along(v)),
            mark="unsafe",
            safe=lambda v: is_nonzero(v["s"]),
        )
        yield self._rule(
            "shifted",
            (f"x{x}", f"b{b}!"),
            lambda v: self._of(v, v["x"] + v["b"]),
            lambda v: self._of(v, v["x"]) + (self.of_shift or self._of_b)(v),
            f"The {self.noun} of shifted values is their {self.noun} plus that of the shifts.",
            where=self.shifts,
            mark="cancels",
            safe=lambda v: is_map(v["x"]),
        )
        for done, op in (("shifted", "add"), ("lowered", "sub")):
            yield self._rule(
                f"evenly-{done}",
                (f"x{x}", "b!" if self.even_is_parameter else "b"),
                lambda v, op=op: self._of(v, apply(op, v["x"], v["b"])),
                lambda v, op=op: apply(op, self._of(v, v["x"]), self.even(v)),
                f"The {self.noun} of values {done} alike is their {self.noun}, {done}{self.often}.",
                where=self._is_even,
                simplify=self.goes_first,
                mark="cancels",
                safe=lambda v: is_map(v["x"]) or is_map(v["b"]),
            )

    def _rule(self, name: str, words: tuple[str, ...], *sides: Any, **facts: Any) -> Rule:
        attributes = (f"@{a}" for a in OPS[self.op].attrs)
        return rule_of(f"{self.name}-of-{name}", (*words, *attributes), *sides, **facts)

    def _of(self, v: Values, x: Term) -> Term:
        return apply(self.op, x, **{a: v[a] for a in OPS[self.op].attrs})

    def _of_b(self, v: Values) -> Term:
        return self._of(v, v["b"])

    def _is_even(self, v: Values) -> bool:
        return is_unit_along(v["b"], self.along(v)) and (self.is_even is None or self.is_even(v))


def _counted(v: Values) -> Term:
    """The shift times 1, 2, 3 ... along the axis of a running sum."""
    x, axis = v["x"], v["axis"]
    shape = tuple(d if a == axis else 1 for a, d in zip(AXES, x.shape, strict=True))
    counted: Term = v["b"] * cumsum(constant(1, x, shape), axis)
    return counted


def _is_inside(v: Values) -> bool:
    """Do all windows of an image lie in it, so that each has as many elements?"""
    paddings = v["paddings"] if isinstance(v["paddings"], tuple) else (v["paddings"],)
    return not any(paddings) and not v["ceil_mode"]


def _same_places(v: Values) -> bool:
    axes = spatial_axes(v["strides"])
    return all(v["x"].shape[a] == v["b"].shape[a] for a in axes)


ADDITIVE = (
    _Additive(
        "sum",
        "sum",
        "sum",
        " by as many shifts",
        lambda v: v["axes"],
        lambda v: broadcast_sum(v["b"], v["x"], v["axes"]),
        shifts=lambda v: broadcasts_into(v["b"], v["x"]),
        of_shift=lambda v: broadcast_sum(v["b"], v["x"], v["axes"]),
    ),
    _Additive("mean", "mean", "mean", "", lambda v: v["axes"], lambda v: v["b"]),
    _Additive(
        "avg_pool",
        "pool",
        "pooling",
        "",
        lambda v: (-1,),
        lambda v: v["b"],
        sizes=("[N,K]", "[_,K]"),
        is_even=lambda v: v["padding"] == 0,
    ),
    _Additive(
        "image_pool",
        "image-pool",
        "pooling",
        "",
        lambda v: spatial_axes(v["strides"]),
        lambda v: v["b"],
        sizes=("[N,C,...]", "[_,_,...]"),
        is_even=_is_inside,
        shifts=_same_places,
    ),
    _Additive(
        "cumsum",
        "cumsum",
        "running sum",
        " by as many shifts as were added",
        lambda v: (v["axis"],),
        _counted,
        is_even=lambda v: broadcasts_into(v["b"], v["x"]),
        shifts=lambda v: v["x"].shape[v["axis"]] == v["b"].shape[v["axis"]],
        even_is_parameter=True,
        goes_first=False,
    ),
)

RULES = tuple(rule for additive in ADDITIVE for rule in additive.rules())
