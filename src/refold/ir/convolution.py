"""Convolutions and pooling along one, two or three axes (`places`): the sizes of their results.

All kinds are one row of the op table: how many places there are is the length of `strides`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        sizes, kernel, *(attrs[a] for a in (*_WINDOW, "output_padding")), strict=True
    ):
        if e >= max(s, d):
            raise ValueError(f"{e} elements at the end, with a stride of {s}")
        made.append(n * s + (d * (k - 1) + e + 1 - s - 2 * p))
    return pad((batch, features, *_there(made))), one_dtype(inputs)


@dataclass(frozen=True)
class Window:
    """Where the windows of a pooling lie along one axis.

    given, made: elements of the image and of the result. step: from one window to the next. apart:
    from one element of a window to the next.
    """

    given: int
    made: int
    size: int = 1
    step: int = 1
    padding: int = 0
    apart: int = 1

    @staticmethod
    def over(given: int, size: int, step: int, padding: int, apart: int, ceil_mode: bool) -> Window:
        """As PyTorch lays them. ceil_mode: one more that begins in the image and ends outside.

        Raises ValueError where there is none, or where PyTorch would refuse them.
        """
        span = apart * (size - 1) + 1
        if min(size, step, apart) < 1 or not 0 <= padding <= size // 2:
            raise ValueError(f"windows of {size} elements {apart} apart, {step} on, {padding} out")
        room = given + 2 * padding - span
        made = (room + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (made - 1) * step >= given + padding:
            made -= 1
        if made < 1:
            raise ValueError(f"no window of {span} elements in {given}")
        return Window(given, made, size, step, padding, apart)

    @property
    def begin(self) -> int:
        """Where the last window begins; the first begins at `-padding`."""
        return (self.made - 1) * self.step - self.padding

    @property
    def is_inside(self) -> bool:
        """Do all windows lie in the image?"""
        return self.padding == 0 and self.begin + self.apart * (self.size - 1) < self.given

    @property
    def ends_outside(self) -> bool:
        """Does the last window reach beyond what is padded?"""
        return self.begin + self.apart * (self.size - 1) >= self.given + self.padding

    @property
    def has_empty(self) -> bool:
        """Does some window, its elements being apart, hold no element of the image?"""
        starts = (o * self.step - self.padding for o in (*range(self.padding + 1), self.made - 1))
        return not all(
            any(0 <= s + i * self.apart < self.given for i in range(self.size)) for s in starts
        )


def windows(x: Node, attrs: Mapping[str, Any]) -> tuple[Window, ...]:
    """The windows of a pooling of images, axis by axis.

    Raises ValueError where there are none, and where the sizes of the image vary.
    """
    _, _, *given = _axes(x, attrs)
    places = len(attrs["strides"])
    if not all(isinstance(n, int) for n in given):
        raise ValueError("pooling needs fixed sizes")
    paddings, apart = attrs["paddings"], attrs.get("dilations", 1)
    laid = zip(
        _fixed(given),
        attrs["sizes"],
        attrs["strides"],
        (paddings,) * places if isinstance(paddings, int) else paddings,
        (apart,) * places if isinstance(apart, int) else apart,
        strict=True,
    )
    return tuple(Window.over(*axis, attrs["ceil_mode"]) for axis in laid)


def pooled(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """x[N,C,...] -> [N,C,...], an element for each window."""
    batch, channels, *_ = _axes(inputs[0], attrs)
    made = (w.made for w in windows(inputs[0], attrs))
    return pad((batch, channels, *made)), inputs[0].dtype


def largest_pooled(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """The same; each window holds an element of the image."""
    if any(w.has_empty for w in windows(inputs[0], attrs)):
        raise ValueError("a window without an element of the image")
    return pooled(inputs, attrs)


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
