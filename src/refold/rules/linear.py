"""Linear maps: what passes through them, and into which operand.

`linear(x, w)` contracts the last axes: x[N,K], w[M,K] -> [N,M]. Two laws carry most of this table.
What is linear along the *last* axis of the product acts on the rows of the weight; what is linear
along any *other* axis acts on x alone. Both hold for a weight that is itself computed from inputs.
"""

from __future__ import annotations

from refold.rules import through
from refold.rules.rule import Rule
from refold.rules.safety import is_map, is_not_large, is_parameter, is_tame
from refold.rules.term import (
    avg_pool,
    is_unit_along,
    linear,
    mean,
    sum,
    transpose,
)
from refold.rules.through import unbatched

FEATURES = (
    *through.FEATURES,
    Rule(
        "weighted-sum-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @axes",
        lambda x, w, s, axes: sum(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(x, linear(s, transpose(w))),
        "reals",
        "A weighted sum over output features is one product with the weighted sum of the rows.",
        where=lambda x, w, s, axes: axes == (-1,),
        mark="range",
    ),
    Rule(
        "weighted-mean-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @axes",
        lambda x, w, s, axes: mean(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(x, linear(s, transpose(w)) / w.shape[-2]),
        "reals",
        "A weighted mean over output features is one product with the weighted mean of the rows.",
        where=lambda x, w, s, axes: axes == (-1,),
        mark="range",
    ),
    Rule(
        "weighted-pool-through-linear",
        "x[N,K] w[M,K]! s[1,M]! @size @stride @padding @count_include_pad",
        lambda x, w, s, size, stride, padding, count_include_pad: avg_pool(
            linear(x, w) * s, size, stride, padding, count_include_pad
        ),
        lambda x, w, s, size, stride, padding, count_include_pad: linear(
            x, transpose(avg_pool(transpose(w) * s, size, stride, padding, count_include_pad))
        ),
        "reals",
        "Pooling scaled output features is pooling the scaled rows of the weight.",
        mark="range",
    ),
)

ROWS = (
    *through.ROWS,
    Rule(
        "weighted-sum-over-rows",
        "x[N,K] w[M,K] s @axes",
        lambda x, w, s, axes: sum(linear(x, w) * s, axes),
        lambda x, w, s, axes: linear(sum(x * s, axes), w),
        "reals",
        "A weighted sum over a batch can be taken before the product, which then sees one row.",
        where=lambda x, w, s, axes: (
            -1 not in axes and is_unit_along(s, (-1,)) and unbatched(w, axes)
        ),
        simplify=False,
        mark="range",
        safe=lambda x, w, s, axes: is_not_large(s),
    ),
    Rule(
        "row-scale-through-linear",
        "x w s",
        lambda x, w, s: linear(x * s, w),
        lambda x, w, s: linear(x, w) * s,
        "reals",
        "A factor for each row can be applied after the product, in its epilogue.",
        where=lambda x, w, s: is_unit_along(s, (-1,)),
        mark="range",
        safe=lambda x, w, s: is_tame(s) or (is_parameter(w) and is_not_large(s)),
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
        where=lambda x, w, s: is_unit_along(s, (-2,)),
        mark="range",
    ),
    Rule(
        "shift-through-linear",
        "x[N,K] w[M,K]! b[_,K]!",
        lambda x, w, b: linear(x + b, w),
        lambda x, w, b: linear(x, w) + linear(b, w),
        "reals",
        "A shift of the inputs is a shift of the outputs by its own product with the weight.",
        mark="cancels",
        safe=lambda x, w, b: is_map(x),
    ),
    Rule(
        "even-shift-through-linear",
        "x[N,K] w[M,K]! b[_,1]!",
        lambda x, w, b: linear(x + b, w),
        lambda x, w, b: linear(x, w) + transpose(sum(w, (-1,))) * b,
        "reals",
        "A shift of all inputs by one number shifts the outputs by the weight's row sums.",
        mark="cancels",
        safe=lambda x, w, b: is_map(x),
    ),
    Rule(
        "scale-into-weight-rows",
        "x[N,K] w[M,K]! s[1,M?]!",
        lambda x, w, s: linear(x, w) * s,
        lambda x, w, s: linear(x, w * transpose(s)),
        "reals",
        "A factor for each output feature scales the rows of the weight.",
        simplify=False,
        mark="range",
    ),
)

RULES = (*FEATURES, *ROWS, *SCALE)
