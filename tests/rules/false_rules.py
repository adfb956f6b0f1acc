"""Rules that look right and are not. Each must be refuted, or the prover is blind."""

from refold.rules.term import (
    apply,
    avg_pool,
    constant,
    cumsum,
    exp,
    is_unit_along,
    linear,
    log,
    log_softmax,
    logsumexp,
    max,
    maximum,
    mean,
    min,
    permute,
    relu,
    reshape,
    softmax,
    sqrt,
    square,
    sum,
    transpose,
    var,
)

from . import false_convolutions
from .false_convolutions import false as _false

FALSE = (
    *(
        _false(
            f"max-commutes-with-{op}",
            "x @axes",
            lambda x, axes, op=op: max(apply(op, x), axes),
            lambda x, axes, op=op: apply(op, max(x, axes)),
        )
        for op in ("gelu", "silu", "mish", "hardswish", "abs", "square", "sin", "gelu_tanh")
    ),
    _false(
        "max-through-any-scale",
        "x s @axes",
        lambda x, s, axes: max(x * s, axes),
        lambda x, s, axes: max(x, axes) * s,
        where=lambda x, s, axes: is_unit_along(s, axes),
    ),
    _false(
        "variance-through-scale-unsquared",
        "x s @axes @correction",
        lambda x, s, axes, correction: var(x * s, axes, correction=correction),
        lambda x, s, axes, correction: var(x, axes, correction=correction) * s,
        where=lambda x, s, axes, correction: is_unit_along(s, axes),
    ),
    _false(
        "sum-through-sigmoid",
        "x @axes",
        lambda x, axes: sum(apply("sigmoid", x), axes),
        lambda x, axes: apply("sigmoid", sum(x, axes)),
    ),
    _false(
        "max-through-linear",
        "x[N,K] w[M,K]!",
        lambda x, w: max(linear(x, w), (-1,)),
        lambda x, w: linear(x, max(w, (-2,))),
    ),
    _false(
        "sum-through-linear-over-inputs",
        "x[N,K] w[K,K]!",
        lambda x, w: sum(linear(x, w), (-1,)),
        lambda x, w: linear(x, transpose(sum(w, (-1,)))),
    ),
    _false(
        "sum-of-shifted-counts-once",
        "x b @axes",
        lambda x, b, axes: sum(x + b, axes),
        lambda x, b, axes: sum(x, axes) + b,
        where=lambda x, b, axes: is_unit_along(b, axes),
    ),
    _false(
        "mean-of-means",
        "x y @axes",
        lambda x, y, axes: mean(x * y, axes),
        lambda x, y, axes: mean(x, axes) * mean(y, axes),
    ),
    _false(
        "sum-of-product",
        "x y @axes",
        lambda x, y, axes: sum(x * y, axes),
        lambda x, y, axes: sum(x, axes) * sum(y, axes),
    ),
    _false(
        "logsumexp-through-scale",
        "x s+ @axes",
        lambda x, s, axes: logsumexp(x * s, axes),
        lambda x, s, axes: logsumexp(x, axes) * s,
        where=lambda x, s, axes: is_unit_along(s, axes),
    ),
    _false(
        "softmax-ignores-scale",
        "x s+ @axis",
        lambda x, s, axis: softmax(x * s, axis),
        lambda x, s, axis: softmax(x, axis),
    ),
    _false(
        "softmax-ignores-any-shift",
        "x c @axis",
        lambda x, c, axis: softmax(x + c, axis),
        lambda x, c, axis: softmax(x, axis),
    ),
    _false(
        "min-of-mirrored-is-min",
        "x @axes",
        lambda x, axes: min(x * -1.0, axes),
        lambda x, axes: min(x, axes) * -1.0,
    ),
    _false(
        "sum-of-log-softmax",
        "x @axis",
        lambda x, axis: sum(log_softmax(x, axis), (axis,)),
        lambda x, axis: sum(x, (axis,)) - sum(x, (axis,)),
    ),
    _false(
        "logs-add",
        "x+ y+",
        lambda x, y: log(x + y),
        lambda x, y: log(x) + log(y),
    ),
    _false("root-of-square", "x", lambda x: sqrt(square(x)), lambda x: x),
    _false("relu-of-anything", "x", lambda x: relu(x), lambda x: x),
    _false("larger-is-first", "x y", lambda x, y: maximum(x, y), lambda x, y: x),
    _false("exp-of-sum", "x y", lambda x, y: exp(x + y), lambda x, y: exp(x) + exp(y)),
    _false(
        "permutations-in-the-wrong-order",
        "x @order1 @order2",
        lambda x, order1, order2: permute(permute(x, order1), order2),
        lambda x, order1, order2: permute(x, tuple(order2[i] for i in order1)),
    ),
    _false(
        "pool-of-any-reshape",
        "x @shape",
        lambda x, shape: avg_pool(reshape(x, shape), 2, 2, 0, True),
        lambda x, shape: reshape(avg_pool(x, 2, 2, 0, True), (*shape[:-1], shape[-1] // 2)),
    ),
    _false(
        "pool-of-shifted-with-padding",
        "x b[_,1] @size @stride @padding @count_include_pad",
        lambda x, b, size, stride, padding, count_include_pad: avg_pool(
            x + b, size, stride, padding, count_include_pad
        ),
        lambda x, b, size, stride, padding, count_include_pad: (
            avg_pool(x, size, stride, padding, count_include_pad) + b
        ),
    ),
    _false(
        "two-maps-in-the-wrong-order",
        "x[N,K] w[K,K] v[K,K]",
        lambda x, w, v: linear(linear(x, w), v),
        lambda x, w, v: linear(x, linear(w, transpose(v))),
    ),
    _false(
        "cumsum-of-cumsum",
        "x @axis",
        lambda x, axis: cumsum(cumsum(x, axis), axis),
        lambda x, axis: cumsum(x, axis),
    ),
    # right for finite values: only the promise is false
    _false("zero-of-NaN", "x", lambda x: x - x, lambda x: constant(0, x), exact="reals"),
    _false(
        "NaN-is-lost",
        "x y b",
        lambda x, y, b: (x + b) - (y + b),
        lambda x, y, b: x - y,
        where=lambda x, y, b: x.shape == y.shape == b.shape,
        exact="reals",
    ),
    _false(
        "reordered-is-not-bits",
        "x a! b!",
        lambda x, a, b: (x * a) * b,
        lambda x, a, b: x * (a * b),
        exact="bits",
    ),
    *false_convolutions.FALSE,
)
