"""A rule: two sides that are equal, a guard, a promise, and one sentence that says why."""

from __future__ import annotations

import builtins
import dis
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import CodeType
from typing import Any, Literal

from refold.ir import OPS
from refold.rules.combination import SUMS, Form
from refold.rules.find import Finder, finder
from refold.rules.term import App, Term, Var

Exact = Literal["bits", "reals", "finite"]
EXACT: tuple[Exact, ...] = ("bits", "reals", "finite")  # from the strongest promise to the weakest
Path = tuple[int, ...]  # from a term: which argument of each op leads to a part of it
Mark = Literal["cancels", "range", "unsafe"]
MARKS: tuple[Mark, ...] = ("cancels", "range", "unsafe")
ATTRIBUTES = frozenset(a for row in OPS.values() for a in row.attrs)


class RuleError(Exception):
    """A rule is declared badly; the text says which rule, what was expected and what came."""


@dataclass(frozen=True)
class Hole:
    """A variable of a rule.

    dims: its trailing sizes: a letter (the same letter is the same size everywhere), `O?` for that
        size or one, a number, or `_`; sizes not named are free. Of images, `...` are the sizes of
        the spatial axes, as many as there are strides, and `1...` as many ones; there are no
        others. parametric: computed from parameters alone. nonnegative: the
        engine must know that no element is below zero. nonpositive: that none is above it.
        attribute: an op's attribute, not a value. boolean: true or false. index: numbers of rows.
    """

    name: str
    dims: tuple[str, ...] = ()
    parametric: bool = False
    nonnegative: bool = False
    nonpositive: bool = False
    attribute: bool = False
    boolean: bool = False
    index: bool = False

    def sizes(self, spatial_rank: int) -> tuple[str, ...]:
        """`dims` for images of so many spatial axes."""
        if not self.is_of_images:
            return self.dims
        sizes: list[str] = []
        for size in self.dims:
            many = size.endswith("...")
            sizes += [size.removesuffix("...") or "_"] * spatial_rank if many else [size]
        return tuple(sizes)

    @cached_property
    def is_of_images(self) -> bool:
        return any(size.endswith("...") for size in self.dims)


@dataclass(frozen=True)
class Rule:
    """`lhs` equals `rhs` wherever `where` holds.

    signature: the variables in the order of the lambdas' parameters, `x[N,K] w[M,K]! s+ @axes`:
        `!` marks a parameter, `+` a value known to be >= 0, `-` one known to be <= 0, `?` one that
        is true or false, `#` one of integers that number rows, `@` an attribute. A lambda may take
        the last attributes as `**attrs`: those of any op of a family.
    lhs, rhs: the two sides. Each may return a tuple: then all of the left values must be found,
        and each is replaced by its partner.
    exact: `bits` (identical), `reals` (equal in real arithmetic, and NaN where the left side is),
        `finite` (equal for finite values).
    why: one sentence for explanations.
    where: what must hold for the sides to be equal; it reads shapes, dtypes, attributes and
        bounds. Never a question of profit: that is for prices.
    simplify: True where the right side is never worse, so that the directed pass may take it
        without looking back; False for the e-graph alone; a predicate that says when for the
        directed pass alone: for rules that reorder a chain, where an e-graph would keep every
        order.
    mark: what the right side may lose in float32; the shadow proof (shadow.py) finds it, and finds
        it needed. `cancels`: digits, where terms that nearly cancel are taken apart. `range`:
        values that become too large or too small for float32 on the way. `unsafe`: NaN that the
        left side makes of finite or masked inputs.
    safe: of a marked rule, where nothing is lost all the same. The engine uses the rule there
        alone (an `unsafe` one everywhere, if the user asks for that). None: `unsafe` and `cancels`
        rules are never safe, `range` rules wherever their folded parameters fit float32, which
        an emitted file checks of every folded parameter that could leave it.
    terms: the left side is two terms of a linear combination (combination.py), `f(..) * s + f(..)
        * t`, or `(f(..) * s + r) + f(..) * t` with others: they may stand anywhere in it, and what
        has no factor has the factor one. `x - x` and `(x + r) - x` are two that cancel.
    """

    name: str
    signature: str
    lhs: Callable[..., Any]
    rhs: Callable[..., Any]
    exact: Exact
    why: str
    where: Callable[..., bool] | None = None
    simplify: bool | Callable[..., bool] = True
    mark: Mark | None = None
    safe: Callable[..., bool] | None = None
    terms: bool = False
    holes: Mapping[str, Hole] = field(init=False, repr=False)
    patterns: tuple[App, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.exact not in EXACT:
            raise RuleError(f"{self.name}: exact must be one of {EXACT}, got {self.exact!r}")
        if not re.fullmatch(r"[A-Z].*\.", self.why):
            raise RuleError(f"{self.name}: why must be one sentence, got {self.why!r}")
        if self.mark not in (None, *MARKS):
            raise RuleError(f"{self.name}: mark must be one of {MARKS}, got {self.mark!r}")
        if self.safe is not None and self.mark is None:
            raise RuleError(f"{self.name}: safe says where a marked rule may be used; give a mark")
        holes = {h.name: h for h in (_hole(self.name, t) for t in self.signature.split())}
        object.__setattr__(self, "holes", holes)
        for side in ("lhs", "rhs", "where", "simplify", "safe"):
            function = getattr(self, side)
            if callable(function):
                _check_names(self.name, side, function, list(holes))
        try:
            made = self.lhs(**{name: Var(name) for name in holes})
        except (KeyError, ValueError, TypeError) as error:
            raise RuleError(f"{self.name}: lhs is no pattern: {error}") from error
        patterns = made if isinstance(made, tuple) else (made,)
        for p in patterns:
            if not isinstance(p, App):
                raise RuleError(f"{self.name}: lhs must apply an op, got {p!r}")
        object.__setattr__(self, "patterns", patterns)
        bound = {name for p in patterns for name in _variables(p)}
        if any(h.is_of_images for h in holes.values()) and not self.is_of_images:
            raise RuleError(f"{self.name}: sizes `...` are as many as @strides, of which none are")
        if self.terms and not self._speaks_of_terms():
            raise RuleError(
                f"{self.name}: of terms, lhs must be f(..) * s + f(..) * t or (f(..) * s + r) +"
                " f(..) * t, or x - x or (x + r) - x"
            )
        if free := set(holes) - bound:
            raise RuleError(f"{self.name}: lhs does not bind {sorted(free)}")

    @property
    def is_of_images(self) -> bool:
        return "strides" in self.holes

    @property
    def pattern(self) -> App:
        return self.patterns[0]

    @property
    def roots(self) -> tuple[str, ...]:
        """The ops at whose nodes the rule is looked for."""
        return SUMS if self.terms else (self.pattern.op,)

    def _speaks_of_terms(self) -> bool:
        if len(self.patterns) != 1 or self.pattern.op not in SUMS:
            return False
        first, second, _ = self.two_terms
        if isinstance(first, Var):
            return first == second
        products = [t for t in (first, second) if isinstance(t, App) and t.op == "mul"]
        return len(products) == 2 and all(isinstance(t.args[1], Var) for t in products)

    @cached_property
    def finders(self) -> tuple[Finder, ...]:
        """What finds each left side."""
        return tuple(finder(p, self.holes) for p in self.patterns)

    @cached_property
    def term_finders(self) -> tuple[Finder, ...]:
        """Of a rule about two terms with factors: what finds either, its factor aside."""
        terms = (t for t in self.two_terms[:2] if isinstance(t, App))
        return tuple(finder(t.args[0], self.holes) for t in terms)

    @cached_property
    def two_terms(self) -> tuple[Term, Term, Var | None]:
        """The two terms that a rule about terms looks for, and what stands for the others."""
        first, second = self.pattern.args
        if isinstance(first, App) and first.op == "add":
            inner, rest = first.args
            return inner, second, rest if isinstance(rest, Var) else None
        return first, second, None

    @cached_property
    def forms(self) -> tuple[Form, Form]:
        """What is asked of either of the two terms."""
        first, second, _ = self.two_terms
        one, other = (t.args[0] if isinstance(t, App) else t for t in (first, second))
        paths, further = _paths(one), _paths(other)
        shared = [name for name in paths if name in further]
        return _form(one, paths, shared), _form(other, further, shared)


def _form(term: Term, paths: Mapping[str, Path], shared: list[str]) -> Form:
    return Form(term.op if isinstance(term, App) else None, tuple(paths[name] for name in shared))


def _hole(rule: str, text: str) -> Hole:
    found = re.fullmatch(r"(@?)([a-z_][a-z_0-9]*)(?:\[([A-Z0-9_,.?]+)\])?([!+?#-]*)", text)
    if found is None:
        raise RuleError(f"{rule}: expected name[DIMS]! or @attribute, got {text!r}")
    at, name, dims, marks = found.groups()
    if at and name.rstrip("0123456789") not in ATTRIBUTES:
        raise RuleError(f"{rule}: no op has an attribute {name!r}")
    sizes = tuple(dims.split(",")) if dims else ()
    if not all(re.fullmatch(r"[A-Z]\??|[0-9]+|_|1?\.\.\.", size) for size in sizes):
        raise RuleError(f"{rule}: expected sizes such as N, O?, 1, _, ... or 1..., got {text!r}")
    return Hole(
        name, sizes, "!" in marks, "+" in marks, "-" in marks, bool(at), "?" in marks, "#" in marks
    )


def _check_names(rule: str, side: str, function: Callable[..., Any], holes: list[str]) -> None:
    """The parameters are the signature's, and every name that is used exists."""
    names, more = _parameters(function)
    if names != (holes[: len(names)] if more else holes):
        raise RuleError(f"{rule}: {side} takes {names}, the signature declares {holes}")
    for name in _globals(function.__code__):
        if name in function.__globals__:
            continue
        if name in OPS or not hasattr(builtins, name):
            raise RuleError(f"{rule}: {side} uses {name!r}, which is not defined here")


def _parameters(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """The parameters without a default, which carries a family's member; and whether it takes
    further ones by their names."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    ordinary = code.co_varnames[: code.co_argcount]
    given = ordinary[: len(ordinary) - len(function.__defaults__ or ())]
    by_name = code.co_varnames[code.co_argcount : count]
    given += tuple(n for n in by_name if n not in (function.__kwdefaults__ or ()))
    if code.co_flags & inspect.CO_VARARGS:
        given += (code.co_varnames[count],)
    return list(given), bool(code.co_flags & inspect.CO_VARKEYWORDS)


@cache
def _globals(code: CodeType) -> tuple[str, ...]:
    """The global names that a function reads. Rules of one law have one code: reading all of them
    took a third of a second of each start."""
    found = (s.argval for s in dis.get_instructions(code) if s.opname == "LOAD_GLOBAL")
    return tuple(dict.fromkeys(found))


def _variables(term: Term) -> set[str]:
    if isinstance(term, Var):
        return {term.name}
    if isinstance(term, App):
        inner = {name for a in term.args for name in _variables(a)}
        return inner | {v.name for _, v in term.attrs if isinstance(v, Var)}
    return set()


def _paths(term: Term) -> dict[str, Path]:
    """Where in a term its variables are: which argument of each op leads there."""
    if isinstance(term, Var):
        return {term.name: ()}
    found: dict[str, Path] = {}
    for i, argument in enumerate(term.args if isinstance(term, App) else ()):
        for name, path in _paths(argument).items():
            found.setdefault(name, (i, *path))
    return found
