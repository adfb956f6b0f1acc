"""ATen's pooling along one, two and three axes: means and largest elements of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from refold.capture.aten_conv import Sizes, each
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Unsupported, Value, axes_of
from refold.ir import Node, as_scalar, make
from refold.ir.convolution import Window, windows


def _laid(x: Value, attrs: dict[str, Any]) -> tuple[Window, ...]:
    """The windows of a pooling that the op table knows; `attrs` as rules have them: no padding is
    0, and ceil_mode is only said where it makes a difference."""
    need(x.rank in (len(attrs["sizes"]) + 1, len(attrs["sizes"]) + 2), "no image")
    try:
        if not any(attrs["paddings"]):
            attrs["paddings"] = 0
        laid = windows(x.node, attrs | {"ceil_mode": False})
        if attrs["ceil_mode"]:
            up = windows(x.node, attrs)
            attrs["ceil_mode"] = up != laid
            laid = up
    except ValueError as error:  # PyTorch says what is wrong, when it is called
        raise Unsupported(str(error)) from error
    return laid


def _mean_of_windows(
    x: Value,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    paddings: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Node:
    attrs: dict[str, Any] = {"sizes": sizes, "strides": strides, "paddings": paddings}
    attrs["ceil_mode"] = bool(ceil_mode)
    laid = _laid(x, attrs)
    counted = bool(count_include_pad) or attrs["paddings"] == 0 or divisor is not None
    node = make("image_pool", x.node, **attrs, count_include_pad=counted)
    if divisor is None:
        return node
    need(not any(w.ends_outside for w in laid), "a divisor of windows that are cut off")
    return make("mul", node, as_scalar(math.prod(sizes) / divisor, node.dtype))


@handles("avg_pool1d")
def _avg_pool1d(
    out: Out,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    if ceil_mode:
        stride = stride or size
        sizes, strides, paddings = (each(n, 1) for n in (size, stride, list(padding)))
        node = _mean_of_windows(x, sizes, strides, paddings, True, count_include_pad, None)
        return result(node, out)
    node = make(
        "avg_pool",
        x.node,
        size=size[0],
        stride=(stride or size)[0],
        padding=padding[0],
        count_include_pad=bool(count_include_pad),
    )
    return result(node, out)


@handles("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(out: Out, x: Value, size: list[int]) -> Value:
    if size[0] == 1:
        return result(_over_all("mean", x, 1), out)
    return _avg_pool1d(out, x, list(_even(x, size, 1)))


def _avg_pool(places: int) -> Callable[..., Value]:
    def handler(
        out: Out,
        x: Value,
        size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        sizes, strides, paddings = (each(n, places) for n in (size, stride or size, padding))
        how = ceil_mode, count_include_pad, divisor_override
        return result(_mean_of_windows(x, sizes, strides, paddings, *how), out)

    return handler


def _max_pool(places: int) -> Callable[..., Any]:
    def handler(
        out: Any,
        x: Value,
        size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Any:
        numbers = (size, stride or size, padding, dilation)
        names = ("sizes", "strides", "paddings", "dilations")
        attrs: dict[str, Any] = {
            name: each(n, places) for name, n in zip(names, numbers, strict=True)
        }
        attrs["ceil_mode"] = bool(ceil_mode)
        _laid(x, attrs)
        if set(attrs["dilations"]) == {1}:
            attrs["dilations"] = 1
        return _largest(out, make("max_pool", x.node, **attrs))

    return handler


def _largest(out: Any, node: Node) -> Any:
    """A call's result; of one that gives places, too, the values."""
    if isinstance(out, list):  # where the places are read too, the call stays whole
        return [result(node, out[0]), None]
    return result(node, out)


def _over_all(op: str, x: Value, places: int) -> Node:
    return make(op, x.node, axes=axes_of(tuple(range(-places, 0)), x.rank))


def _even(x: Value, size: Sequence[int], places: int) -> tuple[int, ...]:
    """The windows of adaptive pooling, where they are all alike."""
    given = [n for n in x.shape[-places:] if isinstance(n, int)]
    pairs = list(zip(given, size, strict=False))
    even = len(given) == places and all(m and n % m == 0 for n, m in pairs)
    need(even, "uneven adaptive pooling")
    return tuple(n // m for n, m in pairs)


def _adaptive(places: int, over_all: str, pooled: Callable[..., Any]) -> Callable[..., Any]:
    def handler(out: Any, x: Value, size: Sizes) -> Any:
        made = each(size, places)
        if set(made) == {1}:
            return _largest(out, _over_all(over_all, x, places))
        return pooled(out, x, list(_even(x, made, places)))

    return handler


for _places in (1, 2, 3):
    _max = _max_pool(_places)
    HANDLERS[f"max_pool{_places}d"] = HANDLERS[f"max_pool{_places}d_with_indices"] = _max
    HANDLERS[f"adaptive_max_pool{_places}d"] = _adaptive(_places, "max", _max)
    if _places > 1:
        _mean = _avg_pool(_places)
        HANDLERS[f"avg_pool{_places}d"] = _mean
        _adapted = _adaptive(_places, "mean", _mean)
        HANDLERS[f"adaptive_avg_pool{_places}d"] = _adapted
        HANDLERS[f"_adaptive_avg_pool{_places}d"] = _adapted  # what autograd records of it


@handles("prims._low_memory_max_pool_with_offsets")
def _with_offsets(
    out: list[Out],
    x: Value,
    size: list[int],
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Any:
    """As Inductor writes a pooling that gives, beside values, where in its window each was."""
    return _max_pool(len(size))(out, x, size, stride, padding, dilation, ceil_mode)
