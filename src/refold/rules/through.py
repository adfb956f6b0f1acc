"""What adds or picks elements of a product does so of one of its operands.

Along the last axis of `linear(x, w)` it acts on the rows of w, along any other axis on x. This
holds of every op that is linear in its one operand and acts along axes, so that its rules are made
from one row of facts. Each instance is a rule like any other, and is proved as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from refold.ir import OPS
from refold.rules.rule import Rule
from refold.rules.schemas import Values, rule_of
from refold.rules.term import Term, apply, is_unit_along, linear, transpose


def unbatched(w: Term, axes: Iterable[int]) -> bool:
    """Is the weight the same along those of `axes` that are not rows of x?"""
    return is_unit_along(w, [a for a in axes if a < -2])


@dataclass(frozen=True)
class _Along:
    """An op of one operand that is linear in it and acts along the axes of an attribute, or, where
    it has none of these, along the last one.

    name: in the names of rules. noun: in sentences. of_parameters: it is taken only into a weight
    that is a parameter, because it leaves as many rows. goes_first: it is taken into the weight
    wherever it meets one; else the price decides.
    """

    op: str
    name: str
    noun: str
    of_parameters: bool = False
    goes_first: bool = True

    def features(self) -> Rule:
        weight = "w[M,K]!" if self.of_parameters else "w[M,K]"
        return rule_of(
            f"{self.name}-through-linear",
            ("x[N,K]", weight, *self._words()),
            self._of_product,
            lambda v: linear(v["x"], self._of_rows(v)),
            f"The {self.noun} of output features is one product with that of the weight's rows.",
            where=(lambda v: self._axes(v) == (-1,)) if self._is_given_axes() else None,
            simplify=self.goes_first,
        )

    def rows(self) -> Iterator[Rule]:
        if self._is_given_axes():
            yield rule_of(
                f"{self.name}-over-rows",
                ("x[N,K]", "w[M,K]", *self._words()),
                self._of_product,
                lambda v: linear(apply(self.op, v["x"], **self._attributes(v)), v["w"]),
                f"The {self.noun} of rows can be taken before the product.",
                where=lambda v: -1 not in self._axes(v) and unbatched(v["w"], self._axes(v)),
                simplify=False,
            )

    def rows_and_features(self) -> Iterator[Rule]:
        """Along both at once: of ops that take several axes."""
        if "axes" in OPS[self.op].attrs:
            yield rule_of(
                f"{self.name}-over-rows-and-features",
                ("x[N,K]", "w[M,K]", *self._words()),
                self._of_product,
                lambda v: linear(apply(self.op, v["x"], axes=v["axes"][:-1]), self._of_rows(v)),
                f"The {self.noun} of a whole product is the product of two {self.noun}s.",
                where=lambda v: (
                    v["axes"][-1] == -1 and len(v["axes"]) > 1 and unbatched(v["w"], v["axes"][:-1])
                ),
                simplify=False,
            )

    def _words(self) -> Iterator[str]:
        return (f"@{a}" for a in OPS[self.op].attrs)

    def _attributes(self, v: Values) -> Values:
        return {a: v[a] for a in OPS[self.op].attrs}

    def _is_given_axes(self) -> bool:
        return not {"axes", "axis"}.isdisjoint(OPS[self.op].attrs)

    def _axes(self, v: Values) -> tuple[int, ...]:
        return v["axes"] if "axes" in v else (v["axis"],)

    def _of_product(self, v: Values) -> Term:
        return apply(self.op, linear(v["x"], v["w"]), **self._attributes(v))

    def _of_rows(self, v: Values) -> Term:
        """The op along the rows of the weight, as it is along the last axis of the product."""
        given = self._attributes(v)
        if not self._is_given_axes():
            return transpose(apply(self.op, transpose(v["w"]), **given))
        rows = {"axes": (-2,)} if "axes" in given else {"axis": -2}
        return apply(self.op, v["w"], **{**given, **rows})


_OPS = (
    _Along("sum", "sum", "sum"),
    _Along("mean", "mean", "mean"),
    _Along("avg_pool", "pool", "pooling", of_parameters=True),
    _Along("slice", "slice", "part", goes_first=False),
    _Along("cumsum", "cumsum", "running sum", of_parameters=True),
)
FEATURES = tuple(op.features() for op in _OPS)
ROWS = (
    *(rule for op in _OPS for rule in op.rows()),
    *(rule for op in _OPS for rule in op.rows_and_features()),
)
