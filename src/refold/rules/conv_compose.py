"""How convolutions compose: one after the other, side by side, a part of one, pooled.

What a product of the channels alone does, a kernel of one element, it does at every place alike: so
it joins the convolution before or behind it, and pooling passes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.ir.shapes import pad
from refold.rules.conv import of_shift
from refold.rules.image import CONV, channels, in_groups, is_zero, spatial_axes, swapped
from refold.rules.rule import Rule
from refold.rules.schemas import Values, rule_of
from refold.rules.term import (
    AXES,
    Term,
    cat,
    concatenated,
    constant,
    conv,
    expand,
    image_pool,
    linear,
    permute,
    reshape,
    slice,
    sum,
    transpose,
)

_WINDOW = ("strides", "paddings", "dilations", "groups")


def _window(v: Values, which: str = "") -> tuple[Any, ...]:
    return tuple(v[f"{a}{which}"] for a in _WINDOW)


def _made(v: Values) -> Term:
    return conv(v["x"], v["w"], v["b"], *_window(v))


def _is_single(w: Term, strides: Sequence[int]) -> bool:
    """Has a kernel one element?"""
    return all(w.shape[a] == 1 for a in spatial_axes(strides))


# --- one after the other --------------------------------------------------------------------------
def _are_one(v: Values) -> bool:
    """Is one of two kernels a single element, and are shifts between them seen at every place?"""
    if v["groups"] != v["groups2"]:
        return False
    if _is_single(v["w2"], v["strides"]) and not any(v["paddings2"]):
        return True
    alone = _is_single(v["w"], v["strides"]) and not any(v["paddings"])
    return alone and set(v["strides"]) == {1} and (is_zero(v["b"]) or not any(v["paddings2"]))


def _composed(v: Values) -> Term:
    strides, groups = v["strides"], v["groups"]
    first, second = (in_groups(v[w], strides, groups) for w in ("w", "w2"))  # [groups, rows, D, K]
    outer = _is_single(v["w2"], strides) and not any(v["paddings2"])
    _, rows, _, _ = second.shape[-4:]
    _, inner, depth, size = first.shape[-4:]
    if outer:
        second = reshape(second, pad((groups, rows, inner)))
        first = reshape(first, pad((groups, inner, depth * size)))
        rows_of = linear(second, transpose(first))  # [groups, rows, D * K]
        kernel = v["w"].shape[channels(strides) + 1 :]
        window = v["paddings"], v["dilations"]
    else:
        first = reshape(first, pad((groups, 1, inner, depth)))
        rows_of = transpose(linear(transpose(second), transpose(first)))  # [groups, rows, D, K]
        kernel = v["w2"].shape[channels(strides) + 1 :]
        window = v["paddings2"], v["dilations2"]
    weight = reshape(rows_of, pad((groups * rows, depth, *kernel)))
    bias = v["b2"]
    if not is_zero(v["b"]):
        shift = permute(v["b"], swapped(channels(strides), -1))
        added = of_shift(v["w2"], shift, strides, groups)
        bias = added if is_zero(bias) else bias + added
    apart = tuple(s * t for s, t in zip(strides, v["strides2"], strict=True))
    return conv(v["x"], weight, bias, apart, *window, groups)


CHAIN = rule_of(
    "two-convolutions-as-one",
    (
        *CONV.format("!", "!", "w2[P,E,...]! b2[1,1,1,1,P?]!").split(),
        *(f"@{a}2" for a in _WINDOW),
    ),
    lambda v: conv(_made(v), v["w2"], v["b2"], *_window(v, "2")),
    _composed,
    "A map of the channels before or behind a convolution is a part of its weight.",
    where=_are_one,
    simplify=False,
    mark="range",
)


# --- parts ----------------------------------------------------------------------------------------
def _of_group(v: Values) -> tuple[int, int] | None:
    """The groups in which a part of the channels lies, the first and how many; None where it has
    parts of several."""
    features = v["w"].shape[channels(v["strides"]) - 1]
    each = features // v["groups"]
    start, length = v["start"], v["length"]
    if start % each == 0 and length % each == 0:
        return start // each, length // each
    return (start // each, 1) if start // each == (start + length - 1) // each else None


def _is_part_of_channels(v: Values) -> bool:
    return v["axis"] == channels(v["strides"]) and _of_group(v) is not None


def _part_of_channels(v: Values) -> Term:
    x, w, b, axis = v["x"], v["w"], v["b"], channels(v["strides"])
    first, groups = _of_group(v) or (0, 1)
    if groups != v["groups"]:
        x = slice(x, axis, first * w.shape[axis], groups * w.shape[axis])
    w = slice(w, axis - 1, v["start"], v["length"])
    b = b if b.shape[-1] == 1 else slice(b, -1, v["start"], v["length"])
    return conv(x, w, b, v["strides"], v["paddings"], v["dilations"], groups)


def _met(v: Values) -> tuple[int, int]:
    """Where what a part along a spatial axis meets begins, and how long it is."""
    at = spatial_axes(v["strides"]).index(v["axis"])
    stride, padding, dilation = (v[a][at] for a in _WINDOW[:3])
    reach = dilation * (v["w"].shape[v["axis"]] - 1) + 1
    return v["start"] * stride - padding, (v["length"] - 1) * stride + reach


def _is_inside(v: Values) -> bool:
    """Does a part along a spatial axis meet nothing of the padding?"""
    if v["axis"] not in spatial_axes(v["strides"]):
        return False
    first, length = _met(v)
    size = v["x"].shape[v["axis"]]
    if first == v["start"] * v["strides"][v["axis"]]:
        return True
    return first >= 0 and isinstance(size, int) and first + length <= size


def _part_of_places(v: Values) -> Term:
    axis, strides = v["axis"], v["strides"]
    paddings = zip(spatial_axes(strides), v["paddings"], strict=True)
    left = tuple(0 if a == axis else padding for a, padding in paddings)
    x = slice(v["x"], axis, *_met(v))
    return conv(x, v["w"], v["b"], strides, left, v["dilations"], v["groups"])


def _part(v: Values) -> Term:
    return slice(_made(v), v["axis"], v["start"], v["length"])


_OF_PART = tuple(CONV.format("", "", "@axis @start @length").split())
PARTS = (
    rule_of(
        "part-of-channels",
        _OF_PART,
        _part,
        _part_of_channels,
        "Some channels of a convolution are one with the weights of these.",
        where=_is_part_of_channels,
        simplify=False,
    ),
    rule_of(
        "part-of-places",
        _OF_PART,
        _part,
        _part_of_places,
        "Some places of a convolution are one of the places that they meet.",
        where=_is_inside,
        simplify=False,
    ),
)


# --- side by side ---------------------------------------------------------------------------------
def _biases(b: Term, rows: Any) -> Term:
    """A bias of so many features, each with its own."""
    return b if b.shape[-1] == rows else expand(b, pad((rows,)))


def _joined(v: Values) -> Term:
    strides = v["strides"]
    rows = channels(strides) - 1
    first, second = v["b"], v["b2"]
    if not (is_zero(first) and is_zero(second)):
        ends = ((v[b], v[w].shape[rows]) for b, w in (("b", "w"), ("b2", "w2")))
        first = concatenated([_biases(b, n) for b, n in ends], -1)
    return conv(v["x"], cat(v["w"], v["w2"], rows), first, *_window(v))


BESIDE = rule_of(
    "joined-convolutions",
    (
        *("x[N,C,...]", "w[O,C,...]!", "b[1,1,1,1,O?]!", "w2[P,C,...]!", "b2[1,1,1,1,P?]!"),
        *("@axis", *(f"@{a}" for a in _WINDOW)),
    ),
    lambda v: cat(_made(v), conv(v["x"], v["w2"], v["b2"], *_window(v)), v["axis"]),
    _joined,
    "Two convolutions of one image side by side are one with both weights.",
    where=lambda v: (
        v["axis"] == channels(v["strides"])
        and v["w"].shape[v["axis"] + 1 :] == v["w2"].shape[v["axis"] + 1 :]
    ),
    simplify=False,
)


# --- values that are spread beside an image -------------------------------------------------------
def _has_places(v: Values) -> bool:
    """Has what is spread all places of the image, or has it one and is nothing padded?"""
    x, y, strides = v["x"], v["y"], v["strides"]
    axes, channel = spatial_axes(strides), channels(strides)
    beside = all(v["shape"][a] == d for a, d in zip(AXES, x.shape, strict=True) if a != channel)
    if v["axis"] != channel or v["groups"] != 1 or not beside or y.shape[channel] == 1:
        return False
    whole = all(y.shape[a] == x.shape[a] for a in axes)
    return whole or (all(y.shape[a] == 1 for a in axes) and not any(v["paddings"]))


def _apart(v: Values, is_first: bool) -> Term:
    """Both convolutions, that of what is spread as large as it is."""
    x, y, strides = v["x"], v["y"], v["strides"]
    channel, axes = channels(strides), spatial_axes(strides)
    ahead, n, m = (0 if is_first else y.shape[channel]), x.shape[channel], y.shape[channel]
    own = slice(v["w"], channel, ahead, n)
    other = slice(v["w"], channel, n if is_first else 0, m)
    none = constant(0, v["w"], pad((1,)))
    if all(y.shape[a] == x.shape[a] for a in axes):
        beside = conv(y, other, none, *_window(v))
    else:
        ones = tuple(1 for _ in strides)
        beside = conv(y, sum(other, axes), none, ones, v["paddings"], ones, 1)
    return conv(x, own, v["b"], *_window(v)) + beside


def _spread(is_first: bool) -> Rule:
    def whole(v: Values) -> Term:
        parts = v["x"], expand(v["y"], v["shape"])
        return concatenated(parts if is_first else parts[::-1], v["axis"])

    return rule_of(
        f"channels-that-are-spread-{'behind' if is_first else 'before'}-an-image",
        (
            *("x[N,C,...]", "y[N?,E,...]", "w[O,G,...]!", "b[1,1,1,1,O?]"),
            *("@shape", "@axis", *(f"@{a}" for a in _WINDOW)),
        ),
        lambda v: conv(whole(v), v["w"], v["b"], *_window(v)),
        lambda v: _apart(v, is_first),
        "Of channels that are the same at many places, one place is convolved.",
        where=_has_places,
        simplify=False,
    )


# --- pooling --------------------------------------------------------------------------------------
_POOL = ("sizes", "strides2", "paddings2", "ceil_mode", "count_include_pad")


def _passes_pool(v: Values) -> bool:
    """Is a convolution one of channels alone, and a bias among no elements that are not there?"""
    if not _is_single(v["w"], v["strides"]) or set(v["strides"]) != {1} or any(v["paddings"]):
        return False
    around = v["paddings2"] if isinstance(v["paddings2"], tuple) else (v["paddings2"],)
    return not any(around) or not v["count_include_pad"] or is_zero(v["b"])


POOL = rule_of(
    "pool-before-a-map-of-channels",
    (*CONV.format("", "", " ".join(f"@{a}" for a in _POOL)).split(),),
    lambda v: image_pool(_made(v), *(v[a] for a in _POOL)),
    lambda v: conv(image_pool(v["x"], *(v[a] for a in _POOL)), v["w"], v["b"], *_window(v)),
    "Means of windows can be taken before a map of the channels, which then sees fewer places.",
    where=_passes_pool,
    simplify=False,
)

RULES = (CHAIN, *PARTS, BESIDE, *(_spread(first) for first in (True, False)), POOL)
