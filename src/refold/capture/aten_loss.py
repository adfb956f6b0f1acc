"""ATen's losses and similarities, taken apart: what they are computed from need not be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refold.capture.aten_index import picked
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Value, axes_of, axis_of
from refold.ir import HALF_DTYPES, Node, as_scalar, make
from refold.ir.shapes import RANK, broadcast, pad

NONE, MEAN, SUM = 0, 1, 2  # PyTorch's numbers of reductions


def _number(value: float, like: Node) -> Node:
    return as_scalar(value, like.dtype)


def _reduced(each: Node, reduction: int, out: Out) -> Value:
    """One loss for each element, or the mean or sum of all."""
    if reduction != NONE:
        axes = axes_of(None, RANK)
        each = make("mean" if reduction == MEAN else "sum", each, axes=axes)
    return result(each, out)


def _square(d: Node) -> Node:
    return make("square", d)


def _smooth(d: Node, beta: float) -> Node:
    """Half a square over `beta`, from there on a line."""
    far = make("abs", d)
    near = make("mul", make("square", d), _number(0.5 / beta, d))
    line = make("sub", far, _number(0.5 * beta, d))
    return make("where", make("lt", far, _number(beta, d)), near, line)


def _huber(d: Node, delta: float) -> Node:
    """Half a square, beyond `delta` a line."""
    far = make("abs", d)
    near = make("mul", make("square", d), _number(0.5, d))
    line = make("mul", make("sub", far, _number(0.5 * delta, d)), _number(delta, d))
    return make("where", make("le", far, _number(delta, d)), near, line)


def _of_difference(each: Callable[..., Node]) -> Callable[..., Value]:
    def handler(out: Out, x: Value, y: Value, reduction: int = MEAN, *more: float) -> Value:
        need(x.dtype == y.dtype == out[1], "mixed dtypes")
        need(all(m > 0 for m in more), "a width of zero")
        return _reduced(each(make("sub", x.node, y.node), *more), reduction, out)

    return handler


HANDLERS["mse_loss"] = _of_difference(_square)
HANDLERS["l1_loss"] = _of_difference(lambda d: make("abs", d))
HANDLERS["smooth_l1_loss"] = _of_difference(lambda d, beta=1.0: _smooth(d, beta))
HANDLERS["huber_loss"] = _of_difference(lambda d, delta=1.0: _huber(d, delta))


@handles("binary_cross_entropy_with_logits")
def _binary_cross_entropy(
    out: Out,
    x: Value,
    t: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    given = [v for v in (x, t, weight, pos_weight) if v is not None]
    need(all(v.dtype == out[1] for v in given), "mixed dtypes")
    # log(1 + exp(-x)), of which no exponential is beyond one
    small = make("log1p", make("exp", make("neg", make("abs", x.node))))
    soft = make("add", small, make("relu", make("neg", x.node)))
    if pos_weight is not None:
        more = make("sub", pos_weight.node, _number(1.0, x.node))
        soft = make("mul", soft, make("add", make("mul", more, t.node), _number(1.0, x.node)))
    rest = make("mul", make("sub", _number(1.0, x.node), t.node), x.node)
    each = make("add", rest, soft)
    if weight is not None:
        each = make("mul", each, weight.node)
    return _reduced(each, reduction, out)


@handles("kl_div")
def _kl_div(
    out: Out, x: Value, t: Value, reduction: int = MEAN, *, log_target: bool = False
) -> Value:
    need(x.dtype == t.dtype == out[1], "mixed dtypes")
    if log_target:
        each = make("mul", make("exp", t.node), make("sub", t.node, x.node))
    else:
        zero = _number(0.0, t.node)
        entropy = make("mul", t.node, make("log", t.node))
        entropy = make("where", make("eq", t.node, zero), zero, entropy)
        each = make("sub", entropy, make("mul", t.node, x.node))
    return _reduced(each, reduction, out)


@handles("cosine_similarity")
def _cosine_similarity(out: Out, x: Value, y: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    need(x.dtype == y.dtype == out[1], "mixed dtypes")
    rank = max(x.rank, y.rank)
    axes = (axis_of(dim, rank),)
    need(x.node.shape[axes[0]] == y.node.shape[axes[0]], "broadcasting along the dimension")

    def length(v: Node) -> Node:
        norm = make("sqrt", make("sum", make("square", v), axes=axes))
        return make("maximum", norm, _number(eps, v))

    dot = make("sum", make("mul", x.node, y.node), axes=axes)
    need(dot.shape == broadcast(length(x.node).shape, length(y.node).shape), "shapes")
    return result(make("div", dot, make("mul", length(x.node), length(y.node))), out)


@handles("triplet_margin_loss")
def _triplet_margin_loss(
    out: Out,
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Value:
    need(p == 2 and not swap, "another distance")
    need(all(v.dtype == out[1] and v.rank == 2 for v in (anchor, positive, negative)), "mixed")

    def distance(v: Value) -> Node:
        d = make("add", make("sub", anchor.node, v.node), _number(eps, v.node))
        return make("sqrt", make("sum", make("square", d), axes=(-1,)))

    beyond = make("sub", distance(positive), distance(negative))
    each: Any = make("relu", make("add", beyond, _number(margin, beyond)))
    return _reduced(each, reduction, out)


@handles("cross_entropy_loss")
def _cross_entropy(
    out: Out,
    x: Value,
    t: Value,
    weight: Value | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Of rows of logits; `t` holds the number of each row's class, or probabilities."""
    need(x.rank == 2 and weight is None, "other than rows, or weights")
    need(
        x.dtype == out[1] and out[1] not in HALF_DTYPES,
        "16 bits do not hold the numbers of classes",
    )
    logs = make("log_softmax", x.node, axis=-1)
    if t.dtype == x.dtype:
        return _of_probabilities(out, logs, t, reduction, label_smoothing)
    need(label_smoothing == 0, "smoothing")
    picked, counts = _of_classes(logs, t, ignore_index)
    if reduction == NONE:
        return result(picked, out)
    total = make("sum", picked, axes=axes_of(None, RANK))
    if reduction == MEAN:
        total = make("div", total, make("sum", counts, axes=axes_of(None, RANK)))
    return result(total, out)


def _of_probabilities(
    out: Out, logs: Node, t: Value, reduction: int, label_smoothing: float
) -> Value:
    p = t.node
    if label_smoothing:
        even = make("div", _number(label_smoothing, p), as_scalar(t.shape[-1], p.dtype))
        p = make("add", make("mul", p, _number(1 - label_smoothing, p)), even)
    each = make("neg", make("sum", make("mul", logs, p), axes=(-1,)))
    return _reduced(each, reduction, out)


def _of_classes(logs: Node, t: Value, ignored: int) -> tuple[Node, Node]:
    """The loss of each row, [N,1], and whether it counts, [N].

    A row's own class is picked by comparing its number with all: so whatever kernel has the row
    picks it, and nothing of a row's length is stored for it."""
    classes, rows = logs.shape[-1], t.shape[0]
    few = isinstance(classes, int) and classes < 1 / torch.finfo(torch.float32).eps
    need(few and t.dtype == torch.int64, "how many classes")
    kept = make("ne", t.node, as_scalar(ignored, t.dtype))
    known = make("where", kept, t.node, as_scalar(0, t.dtype))
    of_own = picked(known, logs)
    counts = make("cast", kept, dtype=logs.dtype)
    column = make("reshape", counts, shape=pad((rows, 1)))
    zero = _number(0.0, logs)
    return make("where", make("ne", column, zero), make("neg", of_own), zero), counts
