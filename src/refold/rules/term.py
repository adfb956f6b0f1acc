"""The words that rules are written in: `sum(x * s, axes)`, `linear(x, w) + b`.

One expression, two readings. On variables it builds a *pattern* (what the engine looks for); on
values it builds a *node* (what the engine puts in its place, and what the proof evaluates in
float64). So a rule's two sides are written once, as mathematics, and nothing can drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from refold.ir import OPS, Dim, Node, Sym, as_scalar, make, numel
from refold.ir.shapes import RANK, broadcast

Number: TypeAlias = "int | float | Sym"


class Term:
    """What a rule's lambdas compute with: a pattern or a value."""

    def __add__(self, other: Operand) -> Term:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Term:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Term:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Term:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Term:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Term:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Term:
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Term:
        return apply("div", other, self)

    def __neg__(self) -> Term:
        return apply("neg", self)

    # what a guard and a right-hand side may ask of a value; a pattern has no answer
    @property
    def node(self) -> Node:
        raise TypeError(f"{self!r} is a pattern: only where= and rhs= may read a value's shape")

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.node.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.node.dtype


Operand: TypeAlias = "Term | Number"


@dataclass(frozen=True)
class Var(Term):
    """A variable: stands for any value (or, among attributes, for any attribute)."""

    name: str


@dataclass(frozen=True)
class Num(Term):
    """A Python number, matched by its value."""

    value: Number


@dataclass(frozen=True)
class App(Term):
    """An op applied to patterns. Attributes are plain values or `Var`s."""

    op: str
    args: tuple[Term, ...]
    attrs: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Value(Term):
    """A node of a graph, dressed with operators."""

    of: Node

    @property
    def node(self) -> Node:
        return self.of


def apply(op: str, *args: Operand, **attrs: Any) -> Term:
    """The op on patterns or on values; Python numbers take the dtype of the values beside them.

    Raises KeyError for an unknown op, ValueError for values that the op does not take.
    """
    if op not in OPS:
        raise KeyError(f"the op table has no op {op!r}")
    if any(isinstance(a, Value) for a in args):
        dtypes = [a.dtype for a in args if isinstance(a, Value) and a.dtype != torch.bool]
        nodes = [a.node if isinstance(a, Term) else as_scalar(a, dtypes[0]) for a in args]
        return Value(make(op, *nodes, **attrs))
    terms = tuple(a if isinstance(a, Term) else Num(a) for a in args)
    row = OPS[op]
    if row.arity is not None and row.arity != len(terms):
        raise ValueError(f"{op} takes {row.arity} inputs, the rule gives {len(terms)}")
    if set(attrs) != set(row.attrs):
        raise ValueError(f"{op} takes the attributes {list(row.attrs)}, the rule gives {[*attrs]}")
    return App(op, terms, tuple(sorted(attrs.items())))


# --- shapes, for guards and right-hand sides -----------------------------------------------------
def is_unit_along(s: Term, axes: Iterable[int]) -> bool:
    """Is `s` the same along all of `axes`, being of size 1 there?"""
    return all(s.shape[a] == 1 for a in axes)


def broadcasts_into(s: Term, x: Term) -> bool:
    """Does `s` broadcast into `x` without making it larger?"""
    return all(a in (1, b) for a, b in zip(s.shape, x.shape, strict=True))


def count(x: Term, axes: Iterable[int]) -> Dim:
    """How many elements of `x` one reduction over `axes` reads."""
    return numel(x.shape[a] for a in axes)


def non_unit_axes(x: Term, axes: Iterable[int]) -> tuple[int, ...]:
    """Those of `axes` along which `x` has more than one element."""
    return tuple(a for a in axes if x.shape[a] != 1)


def broadcast_sum(s: Term, x: Term, axes: Iterable[int]) -> Term:
    """The sum of `s` over `axes` as if it were spread to the shape of `x`, without spreading it."""
    inner = non_unit_axes(s, axes)
    total = sum(s, inner) if inner else s
    times = count(x, [a for a in axes if a not in inner])
    return total if times == 1 else total * times


def shape_of(x: Term, y: Term) -> tuple[Dim, ...]:
    """The shape to which `x` and `y` broadcast."""
    return broadcast(x.shape, y.shape)


def constant(value: Number, like: Term, shape: tuple[Dim, ...] | None = None) -> Term:
    """One number everywhere, in the shape (unless given) and dtype of `like`."""
    shape = like.shape if shape is None else shape
    one = Value(as_scalar(value, like.dtype))
    return one if one.shape == shape else expand(one, shape)


def smaller(s: Term, x: Term) -> bool:
    """Does `s` broadcast into `x`, and is it smaller?"""
    return broadcasts_into(s, x) and s.shape != x.shape


def run_of(given: Sequence[Dim], shape: Sequence[Dim], axis: int) -> tuple[int, ...] | None:
    """The axes of a shape that a reshape to another makes its `axis`; None where it cuts one."""
    before = numel(shape[:axis])
    first = [a for a in AXES if numel(given[:a]) == before][-1:]
    runs = (tuple(range(a, end)) for a in first for end in range(a + 1, 1))
    return next((r for r in runs if numel(given[a] for a in r) == shape[axis]), None)


# --- the ops, by their names in the op table ----------------------------------------------------
def _pointwise(op: str) -> Callable[..., Term]:
    def call(*args: Operand, **attrs: Any) -> Term:
        return apply(op, *args, **attrs)

    call.__name__ = op
    return call


def held(op: str) -> str:
    """What a rule's signature says of the attributes of a pointwise op, which it leaves alone."""
    return "".join(f" @{a}" for a in OPS[op].attrs)


def _over(op: str) -> Callable[..., Term]:
    def call(x: Operand, axes: Any, **attrs: Any) -> Term:
        return apply(op, x, axes=axes, **attrs)

    call.__name__ = op
    return call


def _along(op: str) -> Callable[[Operand, Any], Term]:
    def call(x: Operand, axis: Any) -> Term:
        return apply(op, x, axis=axis)

    call.__name__ = op
    return call


exp, log, sqrt, rsqrt, reciprocal, square, abs, neg, relu = (
    _pointwise(n)
    for n in ("exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "abs", "neg", "relu")
)
maximum, minimum, pow, select, cast = (
    _pointwise(n) for n in ("maximum", "minimum", "pow", "where", "cast")
)
# the reductions that have axes alone; those of which the reduction of parts is that of the whole
REDUCTIONS = {r.name: _over(r.name) for r in OPS.values() if r.attrs == ("axes",)}
JOINING = {n: f for n, f in REDUCTIONS.items() if (how := OPS[n].reduction) and how.joins}
LINEAR = {n: f for n, f in REDUCTIONS.items() if OPS[n].linear_in}
SELECTING = {n: f for n, f in REDUCTIONS.items() if OPS[n].selects}
sum, mean, prod, max, min, logsumexp = (
    REDUCTIONS[n] for n in ("sum", "mean", "prod", "max", "min", "logsumexp")
)
var = _over("var")
softmax, log_softmax, cumsum = (_along(n) for n in ("softmax", "log_softmax", "cumsum"))


def linear(x: Operand, w: Operand) -> Term:
    """Contraction of the last axes: x[N,K], w[M,K] -> [N,M]."""
    return apply("linear", x, w)


def reshape(x: Operand, shape: Any) -> Term:
    return apply("reshape", x, shape=shape)


def permute(x: Operand, order: Any) -> Term:
    return apply("permute", x, order=order)


def diagonal(d: Operand) -> Term:
    """A row d[1,K] on the diagonal of a matrix [K,K]."""
    return apply("diagonal", d)


def expand(x: Operand, shape: Any) -> Term:
    return apply("expand", x, shape=shape)


def slice(x: Operand, axis: Any, start: Any, length: Any) -> Term:
    """`length` elements along `axis` from `start`."""
    return apply("slice", x, axis=axis, start=start, length=length)


def cat(x: Operand, y: Operand, axis: Any) -> Term:
    """Two values behind each other along `axis`."""
    return apply("cat", x, y, axis=axis)


def concatenated(parts: Iterable[Operand], axis: Any) -> Term:
    """Values behind each other along `axis`, any number of them."""
    return apply("cat", *parts, axis=axis)


def avg_pool(x: Operand, size: Any, stride: Any, padding: Any, count_include_pad: Any) -> Term:
    """Means of windows along the last axis."""
    return apply(
        "avg_pool",
        x,
        size=size,
        stride=stride,
        padding=padding,
        count_include_pad=count_include_pad,
    )


def image_pool(
    x: Operand,
    sizes: Any,
    strides: Any,
    paddings: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
) -> Term:
    """Means of windows of x[N,C,...] along the last axes, as many as there are strides."""
    return apply(
        "image_pool",
        x,
        sizes=sizes,
        strides=strides,
        paddings=paddings,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )


def max_pool(
    x: Operand, sizes: Any, strides: Any, paddings: Any, dilations: Any, ceil_mode: Any
) -> Term:
    """The largest elements of windows of x[N,C,...] along the last axes."""
    return apply(
        "max_pool",
        x,
        sizes=sizes,
        strides=strides,
        paddings=paddings,
        dilations=dilations,
        ceil_mode=ceil_mode,
    )


def embedding(ids: Operand, table: Operand) -> Term:
    """ids[...], table[V,K] -> [...,K]: for each number its row."""
    return apply("embedding", ids, table)


def conv(
    x: Operand, w: Operand, b: Operand, strides: Any, paddings: Any, dilations: Any, groups: Any
) -> Term:
    """x[N,C,H,W], w[O,C/groups,I,J], b[1,1,1,O] or of one element -> [N,O,H',W']."""
    same = {"strides": strides, "paddings": paddings, "dilations": dilations, "groups": groups}
    return apply("conv", x, w, b, **same)


def conv_transpose(
    x: Operand,
    w: Operand,
    b: Operand,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: Any,
    output_padding: Any,
) -> Term:
    """x[N,C,H,W], w[C,O/groups,I,J], b[1,1,1,O] or of one element -> [N,O,H',W']; output_padding:
    what is added at the end of each axis."""
    same = {"strides": strides, "paddings": paddings, "dilations": dilations, "groups": groups}
    return apply("conv_transpose", x, w, b, **same, output_padding=output_padding)


AXES = tuple(range(-RANK, 0))
TRANSPOSE = (*range(RANK - 2), RANK - 1, RANK - 2)  # the last two axes change places


def transpose(x: Operand) -> Term:
    """x[A,B] -> x[B,A]."""
    return permute(x, TRANSPOSE)
