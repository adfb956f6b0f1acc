"""Linear maps: what passes through them, into which operand, and how they compose.

`linear(x, w)` contracts the last axes: x[N,K], w[M,K] -> [N,M]. Two laws carry most of this table.
What is linear along the *last* axis of the product acts on the rows of the weight; what is linear
along any *other* axis acts on x alone. Both hold for a weight that is itself computed from inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from refold.ir import Dim
from refold.rules.rule import Rule
from refold.rules.term import (
    TURN,
    Term,
    avg_pool,
    cumsum,
    cut,
    diagonal,
    flat,
    join,
    linear,
    mean,
    permute,
    sum,
    turn,
)


def _unbatched(w: Term, axes: Iterable[int]) -> bool:
    """Is the weight the same along those of `axes` that are not rows of x?"""
    return flat(w, [a for a in axes if a < -2])


def _cut_apart(y: Term, at: Dim) -> tuple[Term, Term]:
    """The features before `at` and those from it on."""
    return cut(y, -1, 0, at), cut(y, -1, at, y.shape[-1] - at)


FEATURES = (
    Rule(
        "sum-through-linear",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: sum(linear(x, w), axes),
        lambda x, w, axes: linear(x, sum(w, (-2,))),
        "reals",
        "The sum over all output features is one product with the sum of the weight's rows.",
        where=lambda x, w, axes: axes == (-1,),
    ),
    Rule(
        "mean-through-linear",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: mean(linear(x, w), axes),
        lambda x, w, axes: linear(x, mean(w, (-2,))),
        "reals",
        "The mean over all output features is one product with the mean of the weight's rows.",
        where=lambda x, w, axes: axes == (-1,),
    ),
    Rule(
        "pool-through-linear",
        "x[N,K] w[M,K]! @size @stride @padding @count_include_pad",
        lambda x, w, size, stride, padding, count_include_pad: avg_pool(
            linear(x, w), size, stride, padding, count_include_pad
        ),
        lambda x, w, size, stride, padding, count_include_pad: linear(
            x, turn(avg_pool(turn(w), size, stride, padding, count_include_pad))
        ),
        "reals",
        "Pooling over output features is the same pooling of the weight's rows.",
    ),
    Rule(
        "slice-of-features",
        "x[N,K] w[M,K] @axis @start @length",
        lambda x, w, axis, start, length: cut(linear(x, w), axis, start, length),
        lambda x, w, axis, start, length: linear(x, cut(w, -2, start, length)),
        "reals",
        "Only the weight's rows that are kept need to be multiplied.",
        where=lambda x, w, axis, start, length: axis == -1,
        simplify=False,
    ),
    Rule(
        "cumsum-through-linear",
        "x[N,K] w[M,K]! @axis",
        lambda x, w, axis: cumsum(linear(x, w), axis),
        lambda x, w, axis: linear(x, cumsum(w, -2)),
        "reals",
        "Running sums over output features are running sums of the weight's rows.",
        where=lambda x, w, axis: axis == -1,
    ),
    Rule(
        "weighted-sum-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @axes",
        lambda x, w, s, axes: sum(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(x, linear(s, turn(w))),
        "reals",
        "A weighted sum over output features is one product with the weighted sum of the rows.",
        where=lambda x, w, s, axes: axes == (-1,),
    ),
    Rule(
        "weighted-mean-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @axes",
        lambda x, w, s, axes: mean(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(x, linear(s, turn(w)) / w.shape[-2]),
        "reals",
        "A weighted mean over output features is one product with the weighted mean of the rows.",
        where=lambda x, w, s, axes: axes == (-1,),
    ),
    Rule(
        "weighted-pool-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @size @stride @padding @count_include_pad",
        lambda x, w, s, size, stride, padding, count_include_pad: avg_pool(
            linear(x, w) * s, size, stride, padding, count_include_pad
        ),
        lambda x, w, s, size, stride, padding, count_include_pad: linear(
            x, turn(avg_pool(turn(w) * s, size, stride, padding, count_include_pad))
        ),
        "reals",
        "Pooling scaled output features is pooling the scaled rows of the weight.",
    ),
)

ROWS = (
    Rule(
        "sum-over-rows",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: sum(linear(x, w), axes),
        lambda x, w, axes: linear(sum(x, axes), w),
        "reals",
        "The sum over a batch can be taken before the product, which then sees a single row.",
        where=lambda x, w, axes: -1 not in axes and _unbatched(w, axes),
        simplify=False,
    ),
    Rule(
        "mean-over-rows",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: mean(linear(x, w), axes),
        lambda x, w, axes: linear(mean(x, axes), w),
        "reals",
        "The mean over a batch can be taken before the product, which then sees a single row.",
        where=lambda x, w, axes: -1 not in axes and _unbatched(w, axes),
        simplify=False,
    ),
    Rule(
        "sum-over-rows-and-features",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: sum(linear(x, w), axes),
        lambda x, w, axes: linear(sum(x, axes[:-1]), sum(w, (-2,))),
        "reals",
        "The sum of a whole product is the product of two sums.",
        where=lambda x, w, axes: axes[-1] == -1 and len(axes) > 1 and _unbatched(w, axes[:-1]),
        simplify=False,
    ),
    Rule(
        "mean-over-rows-and-features",
        "x[N,K] w[M,K] @axes",
        lambda x, w, axes: mean(linear(x, w), axes),
        lambda x, w, axes: linear(mean(x, axes[:-1]), mean(w, (-2,))),
        "reals",
        "The mean of a whole product is the product of two means.",
        where=lambda x, w, axes: axes[-1] == -1 and len(axes) > 1 and _unbatched(w, axes[:-1]),
        simplify=False,
    ),
    Rule(
        "weighted-sum-over-rows",
        "x[N,K] w[M,K] s @axes",
        lambda x, w, s, axes: sum(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(sum(x * s, axes), w),
        "reals",
        "A weighted sum over a batch can be taken before the product, which then sees one row.",
        where=lambda x, w, s, axes: -1 not in axes and flat(s, (-1,)) and _unbatched(w, axes),
        simplify=False,
    ),
    Rule(
        "slice-of-rows",
        "x[N,K] w[M,K] @axis @start @length",
        lambda x, w, axis, start, length: cut(linear(x, w), axis, start, length),
        lambda x, w, axis, start, length: linear(cut(x, axis, start, length), w),
        "reals",
        "Only the rows that are kept need to be multiplied.",
        where=lambda x, w, axis, start, length: axis != -1 and _unbatched(w, (axis,)),
        simplify=False,
    ),
    Rule(
        "cumsum-over-rows",
        "x[N,K] w[M,K] @axis",
        lambda x, w, axis: cumsum(linear(x, w), axis),
        lambda x, w, axis: linear(cumsum(x, axis), w),
        "reals",
        "Running sums over a batch can be taken before the product.",
        where=lambda x, w, axis: axis != -1 and _unbatched(w, (axis,)),
        simplify=False,
    ),
    Rule(
        "row-scale-through-linear",
        "x w s",
        lambda x, w, s: linear(x * s, w),
        lambda x, w, s: linear(x, w) * s,
        "reals",
        "A factor for each row can be applied after the product, in its epilogue.",
        where=lambda x, w, s: flat(s, (-1,)),
    ),
)

SCALE = (
    Rule(
        "scale-into-weight",
        "x[N,K] w[M,K]! s[_,K]!",
        lambda x, w, s: linear(x * s, w),
        lambda x, w, s: linear(x, w * s),
        "reals",
        "A factor for each input feature scales the columns of the weight.",
        where=lambda x, w, s: flat(s, (-2,)),
    ),
    Rule(
        "shift-through-linear",
        "x[N,K] w[M,K]! b[_,K]!",
        lambda x, w, b: linear(x + b, w),
        lambda x, w, b: linear(x, w) + linear(b, w),
        "reals",
        "A shift of the inputs is a shift of the outputs by its own product with the weight.",
    ),
    Rule(
        "even-shift-through-linear",
        "x[N,K] w[M,K]! b[_,1]!",
        lambda x, w, b: linear(x + b, w),
        lambda x, w, b: linear(x, w) + turn(sum(w, (-1,))) * b,
        "reals",
        "A shift of all inputs by one number shifts the outputs by the weight's row sums.",
    ),
    Rule(
        "scale-into-weight-rows",
        "x[N,K] w[M,K]! s[1,M?]!",
        lambda x, w, s: linear(x, w) * s,
        lambda x, w, s: linear(x, w * turn(s)),
        "reals",
        "A factor for each output feature scales the rows of the weight.",
        simplify=False,
    ),
)

COMPOSE = (
    Rule(
        "two-maps-as-one",
        "x[N,K] w[M,K] v[P,M]",
        lambda x, w, v: linear(linear(x, w), v),
        lambda x, w, v: linear(x, linear(v, turn(w))),
        "reals",
        "Two linear maps after each other are one, whose weight is the product of their weights.",
        simplify=False,
    ),
    Rule(
        "one-map-as-two",
        "x[N,K] v[M,R] u[K,R]",
        lambda x, v, u: linear(x, linear(v, u)),
        lambda x, v, u: linear(linear(x, turn(u)), v),
        "reals",
        "A weight that is a thin product is cheaper applied one factor after the other.",
        simplify=False,
    ),
    Rule(
        "sum-of-maps",
        "x[N,K] w[M,K]! v[M,K]!",
        lambda x, w, v: linear(x, w) + linear(x, v),
        lambda x, w, v: linear(x, w + v),
        "reals",
        "Two linear maps of one input, added, are one map with the sum of their weights.",
    ),
    Rule(
        "sum-with-scaled-map",
        "x[N,K] w[M,K]! v[M,K]! s[1,_]!",
        lambda x, w, v, s: linear(x, w) + linear(x, v) * s,
        lambda x, w, v, s: linear(x, w + v * turn(s)),
        "reals",
        "A scaled map that is added to a map of the same input is added to its weight.",
    ),
    Rule(
        "sum-with-affine-map",
        "x[N,K] w[M,K]! v[M,K]! b!",
        lambda x, w, v, b: (linear(x, w) + b) + linear(x, v),
        lambda x, w, v, b: linear(x, w + v) + b,
        "reals",
        "A map that is added to a shifted map of the same input is added to its weight.",
    ),
    Rule(
        "sum-with-affine-and-scaled-map",
        "x[N,K] w[M,K]! v[M,K]! b! s[1,_]!",
        lambda x, w, v, b, s: (linear(x, w) + b) + linear(x, v) * s,
        lambda x, w, v, b, s: linear(x, w + v * turn(s)) + b,
        "reals",
        "A scaled map that is added to a shifted map of the same input is added to its weight.",
    ),
    Rule(
        "sum-of-affine-maps",
        "x[N,K] w[M,K]! v[M,K]! b! c!",
        lambda x, w, v, b, c: (linear(x, w) + b) + (linear(x, v) + c),
        lambda x, w, v, b, c: linear(x, w + v) + (b + c),
        "reals",
        "Two shifted linear maps of one input, added, are one.",
    ),
    Rule(
        "difference-of-maps",
        "x[N,K] w[M,K]! v[M,K]!",
        lambda x, w, v: linear(x, w) - linear(x, v),
        lambda x, w, v: linear(x, w - v),
        "reals",
        "The difference of two linear maps of one input is one map.",
    ),
    Rule(
        "map-of-sum",
        "x[N,K] y[N,K] w[M,K]",
        lambda x, y, w: linear(x, w) + linear(y, w),
        lambda x, y, w: linear(x + y, w),
        "reals",
        "One linear map of two inputs, added, is the map of their sum.",
    ),
    Rule(
        "map-of-difference",
        "x[N,K] y[N,K] w[M,K]",
        lambda x, y, w: linear(x, w) - linear(y, w),
        lambda x, y, w: linear(x - y, w),
        "reals",
        "The difference of one linear map of two inputs is the map of their difference.",
    ),
    Rule(
        "affine-map-of-sum",
        "x[N,K] y[N,K] w[M,K] b! c!",
        lambda x, y, w, b, c: (linear(x, w) + b) + (linear(y, w) + c),
        lambda x, y, w, b, c: linear(x + y, w) + (b + c),
        "reals",
        "One shifted linear map of two inputs, added, is the map of their sum with both shifts.",
    ),
    Rule(
        "affine-map-of-difference",
        "x[N,K] y[N,K] w[M,K] b! c!",
        lambda x, y, w, b, c: (linear(x, w) + b) - (linear(y, w) + c),
        lambda x, y, w, b, c: linear(x - y, w) + (b - c),
        "reals",
        "The difference of one shifted linear map of two inputs is the map of their difference.",
    ),
    Rule(
        "outer-product",
        "x[N,1] w[M,1]",
        lambda x, w: linear(x, w),
        lambda x, w: x * turn(w),
        "reals",
        "A product over a single element multiplies each row with each column.",
    ),
    Rule(
        "turned-product",
        "x[N,K] w[M,K]",
        lambda x, w: turn(linear(x, w)),
        lambda x, w: linear(w, x),
        "reals",
        "Turning a product over exchanges its operands.",
        simplify=False,
    ),
)

DIAGONAL = (
    Rule(
        "product-with-diagonal",
        "x d",
        lambda x, d: linear(x, diagonal(d)),
        lambda x, d: x * d,
        "finite",
        "A product with a diagonal matrix scales the features.",
    ),
    Rule(
        "diagonal-with-product",
        "x d",
        lambda x, d: linear(diagonal(d), x),
        lambda x, d: turn(x * d),
        "finite",
        "A diagonal matrix from the left scales the rows.",
    ),
    Rule(
        "turned-diagonal",
        "d @order",
        lambda d, order: permute(diagonal(d), order),
        lambda d, order: diagonal(d),
        "bits",
        "A diagonal matrix is the same turned over.",
        where=lambda d, order: order == TURN,
    ),
)

PAIRS = (
    Rule(
        "two-maps-of-one-input",
        "x[N,K] w[1,1,1,M,K]! v[1,1,1,P,K]!",
        lambda x, w, v: (linear(x, w), linear(x, v)),
        lambda x, w, v: _cut_apart(linear(x, join(w, v, -2)), w.shape[-2]),
        "reals",
        "Two linear maps of one input are one product with both weights, cut apart.",
        simplify=False,
    ),
)

RULES = (*FEATURES, *ROWS, *SCALE, *COMPOSE, *DIAGONAL, *PAIRS)
