"""ATen's normalisations, taken apart into means and variances.

PyTorch computes them in float32 where the values have 16 bits, and rounds the result once.
"""

from __future__ import annotations

from typing import Any

import torch

from refold.capture.registry import Out, handles, need, result
from refold.capture.values import Unsupported, Value, axes_of, cast, value
from refold.ir import HALF_DTYPES, Dim, Node, as_scalar, make
from refold.ir.shapes import RANK


def _wide(v: Value) -> Value:
    """A value in the dtype that PyTorch normalises it in."""
    return cast(v, torch.float32) if v.dtype in HALF_DTYPES else v


def _rounded(node: Node, out: Out) -> Value:
    """What is stored of a result."""
    return result(node if node.dtype == out[1] else make("cast", node, dtype=out[1]), out)


def _normalised(x: Node, mean: Node, variance: Node, eps: float) -> Node:
    root = make("rsqrt", make("add", variance, as_scalar(eps, x.dtype)))
    return make("mul", make("sub", x, mean), root)


def _affine(node: Node, weight: Node | None, bias: Node | None) -> Node:
    if weight is not None:
        node = make("mul", node, weight)
    return node if bias is None else make("add", node, bias)


def _node(v: Value | None) -> Node | None:
    return None if v is None else _wide(v).node


def _per_channel(v: Value | None, rank: int) -> Node | None:
    return None if v is None else value(_wide(v).node, (v.shape[0], *(1,) * (rank - 2))).node


def _batch_statistics(x: Value) -> tuple[tuple[int, ...], Node, Node]:
    axes = axes_of([d for d in range(x.rank) if d != 1], x.rank)
    return axes, make("mean", x.node, axes=axes), make("var", x.node, axes=axes, correction=0)


@handles(
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit",
)
def _batch_norm(
    out: list[Out], x: Value, weight: Value | None, bias: Value | None, *rest: Any
) -> Any:
    need(2 <= x.rank <= RANK, "rank")
    need(x.dtype == out[0][1], "mixed dtypes")
    x = _wide(x)
    tensors = [r for r in rest if isinstance(r, Value)]
    given = [_wide(v) for v in (weight, bias, *tensors) if v is not None]
    need(all(v.dtype == x.dtype for v in given), "mixed dtypes")
    numbers = [r for r in rest if not isinstance(r, Value)]
    training = numbers[0] if len(numbers) == 3 else False
    momentum, eps = numbers[-2:]
    if not training:
        need(len(tensors) == 2, "eval without statistics")
        mean, variance = (_per_channel(t, x.rank) for t in tensors)
        assert mean is not None and variance is not None
    else:
        axes, mean, variance = _batch_statistics(x)
    node = _normalised(x.node, mean, variance, eps)
    node = _affine(node, _per_channel(weight, x.rank), _per_channel(bias, x.rank))
    results: list[Any] = [_rounded(node, out[0]), None, None]
    if training and tensors:
        unbiased = make("var", x.node, axes=axes, correction=1)
        for old, new, shape in zip(tensors, (mean, unbiased), out[3:], strict=True):
            keep = make("mul", _wide(old).node, as_scalar(1 - momentum, x.dtype))
            step = make("mul", value(new, shape[0]).node, as_scalar(momentum, x.dtype))
            results.append(_rounded(make("add", keep, step), shape))
    return results


@handles("batch_norm")
def _whole_batch_norm(
    out: Out,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Any:
    need(not training, "statistics are written")
    return _batch_norm([out], x, weight, bias, mean, variance, momentum, eps)[0]


@handles("layer_norm")
def _layer_norm(
    out: Out,
    x: Value,
    shape: list[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Value:
    x = _wide(x)
    axes = tuple(range(-len(shape), 0))
    mean = make("mean", x.node, axes=axes)
    variance = make("var", x.node, axes=axes, correction=0)
    node = _normalised(x.node, mean, variance, eps)
    return _rounded(_affine(node, _node(weight), _node(bias)), out)


@handles("rms_norm")
def _rms_norm(
    out: Out, x: Value, shape: list[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    x = _wide(x)
    small = torch.finfo(x.dtype).eps if eps is None else eps
    mean = make("mean", make("square", x.node), axes=tuple(range(-len(shape), 0)))
    root = make("rsqrt", make("add", mean, as_scalar(small, x.dtype)))
    return _rounded(_affine(make("mul", x.node, root), _node(weight), None), out)


@handles("group_norm")
def _group_norm(
    out: Out,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Value:
    channels, x = x.shape[1], _wide(x)
    need(x.rank <= RANK, "rank")
    if not isinstance(channels, int):
        raise Unsupported("channels that vary")
    size: Dim = channels // groups
    for d in x.shape[2:]:
        size = d * size
    grouped = value(x.node, (x.shape[0], groups, size)).node
    mean = make("mean", grouped, axes=(-1,))
    variance = make("var", grouped, axes=(-1,), correction=0)
    if x.rank > 2 and groups != channels and weight is not None and bias is not None:
        # one mean, factor and shift for each channel: values are read for their statistics and once
        # more, and nothing is stored between. The mean comes off first: values far from zero times
        # the factor would keep few of the digits that the difference has.
        per_group = (1, groups, channels // groups)
        root = make("rsqrt", make("add", variance, as_scalar(eps, x.dtype)))
        factor = make("mul", root, value(_wide(weight).node, per_group).node)
        means = make("expand", mean, shape=factor.shape)
        per_channel = (x.shape[0], channels, *(1,) * (x.rank - 2))
        means, factor = (value(v, per_channel).node for v in (means, factor))
        shift = value(_wide(bias).node, (1, *per_channel[1:])).node
        centred = make("sub", x.node, means)
        return _rounded(make("add", make("mul", centred, factor), shift), out)
    node = _normalised(grouped, mean, variance, eps)
    if x.rank == 2 or groups == channels:
        # parameters are each group's own, or each value's of a group: one pass over its row
        each = size if x.rank == 2 else 1
        node = _affine(node, *(_in_groups(p, groups, each) for p in (weight, bias)))
        return _rounded(value(node, x.shape).node, out)
    node = value(node, x.shape).node
    return _rounded(_affine(node, _per_channel(weight, x.rank), _per_channel(bias, x.rank)), out)


def _in_groups(parameter: Value | None, groups: int, size: Dim) -> Node | None:
    return None if parameter is None else value(_wide(parameter).node, (groups, size)).node


@handles("instance_norm")
def _instance_norm(
    out: Out,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Value:
    need(running_mean is None and use_input_stats and x.rank <= RANK, "running statistics")
    x = _wide(x)
    axes = tuple(range(-(x.rank - 2), 0))
    mean = make("mean", x.node, axes=axes)
    variance = make("var", x.node, axes=axes, correction=0)
    node = _normalised(x.node, mean, variance, eps)
    return _rounded(_affine(node, _per_channel(weight, x.rank), _per_channel(bias, x.rank)), out)
