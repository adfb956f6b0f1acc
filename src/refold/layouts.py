"""In which order images lie in memory: of the example, of the weights, and of what eager returns.

PyTorch's results follow their arguments: a model that is given images with their channels last
returns such images. The strides of an export are those of its example alone. So eager is asked once
more, with the example's images the other way, and the emitted forward lays out a result as eager
would for the call's own images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture import Captured, Example, kept
from refold.capture.arguments import Arguments
from refold.ir import Dim, Graph, Node
from refold.plan.layout import places_of
from refold.runtime.calls import _refold_in_channels

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def images_in_channels(module: torch.nn.Module, example: Example, c: Captured) -> dict[Node, int]:
    """The leaves of a captured graph that lie channels-last, and their number of places."""
    tensors = _tensors(module, example, c)
    found: dict[Node, int] = {}
    for node in c.graph.nodes():
        value: Any = None
        if node.op == "input":
            value = tensors[node["index"]]
        elif node.op == "param":
            value = module
            for part in str(node["name"]).split("."):
                value = getattr(value, part, None)
        if isinstance(value, torch.Tensor) and is_image(value) and _refold_in_channels(value):
            places = places_of(value.dim())
            assert places is not None
            found[node] = places
    return found


def _tensors(module: torch.nn.Module, example: Example, c: Captured) -> list[Any]:
    """The example's tensors in the order of `c.tensors`, whose last may be attributes."""
    given: list[Any] = list(Arguments(module, example).given)
    attributes = (f.path for f in c.tensors[len(given) :])
    return given + [eval(path, {"self": module}) for path in attributes]


def is_image(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dim() in _FORMATS
        and value.is_floating_point()
        and value.layout is torch.strided
    )


def with_other_layouts(module: torch.nn.Module, example: Example, c: Captured) -> Captured:
    """`c` whose outputs know the strides that eager gives them where images lie the other way.

    Where images of the example lie in different ways, or eager gives other strides than both
    layouts have, nothing is known, and `c.fixed_layout` asks for images as in the example.
    """
    images = [v for v in _tensors(module, example, c) if is_image(v)]
    if not images:
        return c
    c = replace(c, images_last=tuple(map(_refold_in_channels, images)))
    if len(set(c.images_last)) > 1:
        return replace(c, fixed_layout=True)
    last = c.images_last[0]
    if sum(map(is_image, example.leaves())) != len(images):
        # in containers that PyTorch does not know, or in attributes that forward replaces
        return replace(c, fixed_layout=True)
    parts = example.args, dict(example.kwargs)
    given = pytree.tree_map_only(torch.Tensor, lambda v: _flipped(v, last), parts)
    try:
        with kept(module), torch.no_grad():
            module.train(c.training)
            result = Example(*given).call(module)
    except Exception:  # whatever a model raises for images that lie so, its own forward raises
        return replace(c, fixed_layout=True)
    leaves = [v for v in pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]
    returned = [o for o in c.graph.outputs if o.mutates is None]
    if len(leaves) != len(returned):
        return replace(c, fixed_layout=True)
    outputs = []
    for out, real in zip(returned, leaves, strict=True):
        other = _strides(real, out.shape)
        if other is None and real.dim() > 1:
            return replace(c, fixed_layout=True)
        mine = out.strides or _row_major(out.shape)
        differ = other is not None and any(
            a != b for n, a, b in zip(out.shape, mine, other, strict=True) if n != 1
        )
        outputs.append(replace(out, other_strides=other if differ else None))
    written = [o for o in c.graph.outputs if o.mutates is not None]
    return replace(c, graph=Graph((*outputs, *written)))


def _flipped(v: torch.Tensor, last: bool) -> torch.Tensor:
    if not is_image(v):
        return v
    return v.contiguous() if last else v.contiguous(memory_format=_FORMATS[v.dim()])


def _strides(real: torch.Tensor, shape: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The strides of a result in terms of its sizes, if it lies in one of the two layouts."""
    if real.is_contiguous():
        return _row_major(shape)
    if real.dim() in _FORMATS and real.is_contiguous(memory_format=_FORMATS[real.dim()]):
        order = [0, *range(2, len(shape)), 1]
        laid = _row_major([shape[a] for a in order])
        return tuple(laid[order.index(a)] for a in range(len(shape)))
    return None


def _row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
