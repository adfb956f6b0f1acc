"""Arguments that are made up for a graph: to measure its error, and its time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from refold.backend.graphs import size_of, sizes_of
from refold.backend.indices import bound

KINDS = ("normal values", "positive values", "moved values")
MOVED = 1e3  # deviations
SMALL = 2.0**-64  # of gradients that come in


def drawn(
    places: Sequence[torch.fx.Node], parameters: Collection[str], name: str, draw: int = 0
) -> list[Any]:
    """The memory of each placeholder's argument: numbers, in the order in which they lie.

    parameters: the names of placeholders that are parameters or buffers. name: one of KINDS. draw:
    which of several draws. Random states are left as they were.
    """
    seed = 1 + 10 * draw + KINDS.index(name)
    draws: dict[torch.device, torch.Generator] = {}
    found: list[Any] = []
    for node in places:
        meta = node.meta["val"]
        if not isinstance(meta, torch.Tensor):
            found.append(size_of(meta) if isinstance(meta, torch.SymInt) else meta)
            continue
        if meta.device not in draws:
            draws[meta.device] = torch.Generator(meta.device).manual_seed(seed)
        shape, strides = sizes_of(meta.shape), sizes_of(meta.stride())
        count = 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        draw_on = draws[meta.device]
        if meta.dtype is torch.bool:
            found.append(torch.rand(count, device=meta.device, generator=draw_on) < 0.5)
        elif not meta.dtype.is_floating_point:
            # rows that are all the same would be normalised to nothing but rounding
            most = bound(node) if meta.dtype in (torch.int64, torch.int32) else 1
            numbers = torch.randint(most, (count,), device=meta.device, generator=draw_on)
            found.append(numbers.to(meta.dtype))
        else:
            flat = torch.randn(count, device=meta.device, generator=draw_on)
            found.append(_scaled(flat, node.name in parameters, name, shape).to(meta.dtype))
    return found


def _scaled(
    flat: torch.Tensor, is_parameter: bool, name: str, shape: Sequence[int]
) -> torch.Tensor:
    if is_parameter:
        # a weight about as modules begin with it, whichever way it is multiplied; of a vector,
        # which may be a variance, no sign
        inner = max(shape[0], math.prod(shape[1:])) if len(shape) > 1 else 0
        return flat * inner**-0.5 if inner else 0.5 + flat.abs().clamp(max=1.0)
    if name == "positive values":
        return 0.5 + flat.abs().clamp(max=1.0)
    return flat + MOVED if name == "moved values" else flat


def laid(flat: Any, meta: Any, dtype: torch.dtype | None = None) -> Any:
    """A tensor with memory of its own, laid out as the graph is given it. dtype: of its numbers."""
    if not isinstance(flat, torch.Tensor):
        return flat
    wide = dtype if dtype is not None and flat.is_floating_point() else flat.dtype
    return _viewed(flat.to(wide, copy=True), meta)


def _viewed(flat: Any, meta: Any) -> Any:
    if not isinstance(flat, torch.Tensor):
        return flat
    return flat.as_strided(sizes_of(meta.shape), sizes_of(meta.stride()))


def _comes_in(place: torch.fx.Node) -> bool:
    """Is it a gradient of a result, by AOTAutograd's name for it?"""
    meta = place.meta["val"]
    is_float = isinstance(meta, torch.Tensor) and meta.is_floating_point()
    return is_float and place.name.startswith("tangents_")


def examples(module: torch.fx.GraphModule, parameters: Collection[str]) -> Iterator[list[Any]]:
    """Arguments of a graph, of one kind after the other.

    A backward is linear in the gradients that come in. What was saved for it is made up, and may
    let them grow out of range: so they are small, too.
    """
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    incoming = [i for i, n in enumerate(places) if _comes_in(n)]
    for name in KINDS[:-1]:
        for size in (1.0, SMALL) if incoming else (1.0,):
            flats = drawn(places, parameters, name)
            for i in incoming:
                flats[i] = flats[i] * size
            yield [_viewed(f, n.meta["val"]) for f, n in zip(flats, places, strict=True)]
