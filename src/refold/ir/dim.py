"""Sizes: a plain int where the size is fixed, a `Sym` where it may change from call to call.

A `Sym` is a polynomial with integer coefficients over named sizes ("s0", "s1", ...). Two sizes are
equal only if their polynomials are: a batch of 8 and a width of 8 never match by accident. What
cannot be written so (a floor division, say) is not representable, and capture then fixes the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

_Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Sym:
    """A size that is known only at call time. `hint` is its value in the captured example.

    A named size is at least 2 (torch.export's rule). A polynomial of named sizes may be less, as
    s0 - 2 of 2: what torch.export asks of it is checked before each call (`Captured.conditions`).
    """

    terms: tuple[tuple[_Monomial, int], ...]
    hint: int = field(compare=False)

    @staticmethod
    def named(name: str, value: int) -> Sym:
        """The size called `name`, which is `value` in the captured example."""
        return Sym((((name,), 1),), value)

    def names(self) -> set[str]:
        return {name for monomial, _ in self.terms for name in monomial}

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: int) -> Dim:
        return _combine(_as_sym(other), self, -1)

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if not other:
                return 0
            terms = self.terms if other == 1 else tuple((m, c * other) for m, c in self.terms)
            return Sym(terms, self.hint * other)
        right = other
        total: dict[_Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in right.terms:
                key = tuple(sorted(m1 + m2))
                total[key] = total.get(key, 0) + c1 * c2
        return _pack(total, self.hint * right.hint)

    __rmul__ = __mul__

    def divided_by(self, other: Dim) -> Dim | None:
        """self / other where that is exact, else None. `other` must be a single term."""
        right = _as_sym(other)
        if len(right.terms) != 1 or right.terms[0][1] == 0:
            return None
        monomial, coefficient = right.terms[0]
        total: dict[_Monomial, int] = {}
        for m, c in self.terms:
            rest = list(m)
            for name in monomial:
                if name not in rest:
                    return None
                rest.remove(name)
            if c % coefficient:
                return None
            total[tuple(rest)] = c // coefficient
        return _pack(total, self.hint // right.hint)

    def text(self, names: Mapping[str, str] | None = None) -> str:
        """Python (and C++) text of the size, e.g. `n * 4 + 1`; `names` renames the symbols."""
        parts = []
        for monomial, coefficient in self.terms:
            factors = [(names or {}).get(name, name) for name in monomial]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            parts.append(" * ".join(factors))
        return " + ".join(parts)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()


Dim: TypeAlias = int | Sym


def hint(dim: Dim) -> int:
    """The size in the captured example."""
    return dim.hint if isinstance(dim, Sym) else dim


def numel(shape: Iterable[Dim]) -> Dim:
    """The product of the sizes."""
    total: Dim = 1
    for dim in shape:
        total = dim * total
    return total


def divide(dim: Dim, by: Dim) -> Dim | None:
    """dim / by where that is exact whatever the call's sizes are, else None."""
    if isinstance(dim, int) and isinstance(by, int):
        return dim // by if by and dim % by == 0 else None
    return _as_sym(dim).divided_by(by)


def _as_sym(dim: Dim) -> Sym:
    return dim if isinstance(dim, Sym) else Sym((((), dim),), dim)


def _pack(total: Mapping[_Monomial, int], value: int) -> Dim:
    terms = tuple(sorted((m, c) for m, c in total.items() if c))
    if all(m == () for m, _ in terms):
        return sum(c for _, c in terms)
    return Sym(terms, value)


def _combine(left: Sym, right: Dim, sign: int) -> Dim:
    other = _as_sym(right)
    total = dict(left.terms)
    for m, c in other.terms:
        total[m] = total.get(m, 0) + sign * c
    return _pack(total, left.hint + sign * other.hint)
