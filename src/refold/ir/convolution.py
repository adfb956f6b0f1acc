"""Convolutions and pooling along one, two or three axes (`places`): the sizes of their results.

All kinds are one row of the op table: how many places there are is the length of `strides`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from refold.ir.dim import Dim
from refold.ir.shapes import RANK, Typed, one_dtype, pad

if TYPE_CHECKING:
    from refold.ir.node import Node

_WINDOW = ("strides", "paddings", "dilations")


def conv(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """x[N,C,...], w[O,C/groups,...], b[O] or [1] -> [N,O,...]."""
    x, w, b = inputs
    batch, given, *sizes = _axes(x, attrs)
    features, channels, *kernel = _fixed(_axes(w, attrs))
    _check_channels(given, b, channels * attrs["groups"], features, attrs["groups"])
    made: list[Dim] = []
    for n, k, s, p, d in zip(sizes, kernel, *(attrs[a] for a in _WINDOW), strict=True):
        span = n + (2 * p - d * (k - 1) - 1)
        if s != 1 and not isinstance(span, int):
            raise ValueError(f"a stride of {s} over {n} elements")
        made.append(span // s + 1 if isinstance(span, int) else span + 1)
    return pad((batch, features, *_there(made))), one_dtype(inputs)


def conv_transpose(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """x[N,C,...], w[C,O/groups,...], b[O] or [1] -> [N,O,...]."""
    x, w, b = inputs
    batch, given, *sizes = _axes(x, attrs)
    channels, features, *kernel = _fixed(_axes(w, attrs))
    features *= attrs["groups"]
    _check_channels(given, b, channels, features, attrs["groups"])
    made: list[Dim] = []
    for n, k, s, p, d, e in zip(
        sizes, kernel, *(attrs[a] for a in (*_WINDOW, "extras")), strict=True
    ):
        if e >= max(s, d):
            raise ValueError(f"{e} elements at the end, with a stride of {s}")
        made.append(n * s + (d * (k - 1) + e + 1 - s - 2 * p))
    return pad((batch, features, *_there(made))), one_dtype(inputs)


def image_pool(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """x[N,C,...] -> [N,C,...], windows that do not fit being left out."""
    batch, channels, *sizes = _axes(inputs[0], attrs)
    made: list[Dim] = []
    for n, k, s in zip(sizes, attrs["sizes"], attrs["strides"], strict=True):
        if not isinstance(n, int):
            raise ValueError("pooling needs fixed sizes")
        made.append((n - k) // s + 1)
    return pad((batch, channels, *_there(made))), inputs[0].dtype


def of_true_rank(
    inputs: Sequence[torch.Tensor], attrs: Mapping[str, Any], transposed: bool
) -> tuple[torch.Tensor, ...]:
    """What PyTorch's functions take: x and w without leading ones, a bias for each feature."""
    if len(inputs) == 1:
        return (inputs[0].flatten(0, -len(attrs["strides"]) - 2),)
    x, w, b = inputs
    x, w = (v.flatten(0, -len(attrs["strides"]) - 2) for v in (x, w))
    features = w.shape[1] * attrs["groups"] if transposed else w.shape[0]
    return x, w, b.flatten().expand(features)


def _axes(v: Node, attrs: Mapping[str, Any]) -> tuple[Dim, ...]:
    """The sizes of an image or a kernel, from its batch or its features on."""
    rank = len(attrs["strides"]) + 2
    if not 3 <= rank <= RANK or any(d != 1 for d in v.shape[:-rank]):
        raise ValueError(f"a convolution along {rank - 2} axes of {v.shape}")
    return v.shape[-rank:]


def _check_channels(given: Dim, b: Node, channels: int, features: int, groups: int) -> None:
    if given != channels or features % groups or channels % groups:
        raise ValueError(f"a convolution of {given} channels for {channels} in {groups} groups")
    if any(d != 1 for d in b.shape[:-1]) or b.shape[-1] not in (1, features):
        raise ValueError(f"a bias of {b.shape} for {features} features")


def _there(sizes: list[Dim]) -> list[Dim]:
    if any(isinstance(d, int) and d < 1 for d in sizes):
        raise ValueError(f"a convolution of {sizes} elements")
    return sizes


def _fixed(sizes: Sequence[Dim]) -> tuple[int, ...]:
    fixed = tuple(d for d in sizes if isinstance(d, int))
    if len(fixed) < len(sizes):
        raise ValueError(f"fixed sizes are needed, got {list(sizes)}")
    return fixed
