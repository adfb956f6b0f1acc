"""In which order images lie in memory: of the example, of the weights, and of what eager returns.

PyTorch's results follow their arguments: a model that is given images with their channels last
returns such images. The strides of an export are those of its example alone. So eager is asked once
more, with the example's images the other way, and the emitted forward lays out a result as eager
would for the call's own images. Other arguments have to lie in the example's order of dimensions
where results follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture import Captured, CaptureError, Example, kept, set_modes
from refold.capture.arguments import Arguments, no_global_hooks
from refold.capture.containers import walk_leaves
from refold.capture.forms import Given, Viewed
from refold.capture.twin import NoTwin, has_hooks, twin_of
from refold.ir import Dim, Graph, Node
from refold.ir.graph import draws_of
from refold.plan.layout import places_of
from refold.runtime.calls import _refold_in_channels, _refold_order

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
    return given + [eval(path, {"self": module, "torch": torch}) for path in attributes]


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
    odd = any(not _refold_in_channels(v) and not _in_rows(v) for v in images)
    if len(set(c.images_last)) > 1 or odd:
        return replace(c, fixed_layout=True)
    last = c.images_last[0]
    if draws_of(c.graph.nodes()):  # which follows the order of memory
        return replace(c, fixed_layout=True)
    if sum(map(is_image, example.leaves())) != len(images):
        # in containers that PyTorch does not know, or in attributes that forward replaces
        return replace(c, fixed_layout=True)
    parts = example.args, dict(example.kwargs)
    given = pytree.tree_map_only(torch.Tensor, lambda v: _flipped(v, last), parts)
    try:
        result = eagers(module, Example(*given), c)
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


def with_orders(module: torch.nn.Module, example: Example, c: Captured) -> Captured:
    """`c` that knows the orders of dimensions in which arguments lie, where results follow them.

    What a forward draws follows them, too. Of images that is known in the two orders that images
    have (`with_other_layouts`). Of others, whole numbers and masks among them, eager is asked, with
    each in another order than the example's.
    """
    tensors = _tensors(module, example, c)
    if draws_of(c.graph.nodes()):
        asked = {i: v for i, v in enumerate(tensors) if v.layout is torch.strided}
    else:
        others = {i: v for i, v in enumerate(tensors) if _has_order(v)}
        asked = {i: v for i, v in enumerate(tensors) if is_image(v)} if c.fixed_layout else {}
        if others and _follows(module, example, c):
            asked |= others
    if not asked:
        return c
    return replace(c, orders={i: _refold_order(v) for i, v in asked.items()})


def with_views(module: torch.nn.Module, example: Example, c: Captured) -> Captured:
    """`c` that knows the strides of those arguments of which a result is a view only where they lie
    so: what `contiguous` and `reshape` give is a copy where elements have gaps between.

    Eager is asked once more, with gaps in all arguments, if results are views of some.
    """
    trees = (c.result, *c.assigned.values())
    leaves = [leaf for tree in trees for leaf in walk_leaves(tree)]
    shown = Counter(leaf.path for leaf in leaves if isinstance(leaf, (Given, Viewed)))
    if not any(f.path in shown and f.strides is None for f in c.tensors):
        return c
    parts = example.args, dict(example.kwargs)
    given = Example(*pytree.tree_map_only(torch.Tensor, _with_gaps, parts))
    theirs = map(_address, _tensors(module, given, c))
    try:
        found = Counter(map(_address, pytree.tree_leaves(eagers(module, given, c))))
    except Exception:  # a view that cannot be taken
        found = Counter()
    bound = {
        f.path: v.stride()
        for f, v, address in zip(c.tensors, _tensors(module, example, c), theirs, strict=True)
        if f.strides is None and f.path in shown and found[address] != shown[f.path]
    }
    fields = tuple(replace(f, strides=bound[f.path]) if f.path in bound else f for f in c.fields)
    return replace(c, fields=fields)


def eagers(module: torch.nn.Module, example: Example, c: Captured) -> Any:
    """Eager's result in the modes of `c`. Users' hooks see no tensor of ours: a twin without them
    is called. Raises CaptureError where none can be made, and whatever the module raises."""
    try:
        asked = twin_of(module)
    except NoTwin:
        if has_hooks(module):
            raise CaptureError("it has hooks, and no copy without them can be made") from None
        asked = module
    with kept(module), torch.no_grad(), no_global_hooks():
        set_modes(asked, c.training, c.apart)
        return example.call(asked)


def _in_rows(value: torch.Tensor) -> bool:
    return _refold_order(value) == (*range(value.dim()),)


def _has_order(value: Any) -> bool:
    """Whether a tensor that is no image may lie in several orders of its dimensions."""
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return plain and not is_image(value) and sum(n > 1 for n in value.shape) > 1


def _follows(module: torch.nn.Module, example: Example, c: Captured) -> bool:
    """Whether results, but for those that are views of arguments, lie otherwise in memory where
    arguments that are no images do. What raises an error then is taken to."""
    parts = example.args, dict(example.kwargs)
    orders = [_turned]
    if any(v.dim() > 2 and _has_order(v) for v in pytree.tree_leaves(parts) if torch.is_tensor(v)):
        orders.append(_with_channels_last)

    def results(given: Any) -> list[Any]:
        leaves = pytree.tree_leaves(eagers(module, Example(*given), c))
        theirs = {_address(v) for v in pytree.tree_leaves(given)}
        return [v if _address(v) not in theirs else None for v in leaves]

    try:
        usual = results(parts)
        for order in orders:
            found = results(pytree.tree_map_only(torch.Tensor, order, parts))
            if len(found) != len(usual) or any(map(_lie_otherwise, usual, found)):
                return True
    except Exception:  # whatever a model raises for arguments that lie so, its own forward raises
        return True
    return False


def _lie_otherwise(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return a.shape != b.shape or any(
        n > 1 and s != t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


def _address(value: Any) -> int | None:
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage().data_ptr() if strided else None


def _turned(v: torch.Tensor) -> torch.Tensor:
    """The same values in another order of the dimensions: in rows, or the other way round."""
    if not _has_order(v):
        return v
    return _ordered(v, tuple(reversed(range(v.dim())))) if _in_rows(v) else v.contiguous()


def _with_gaps(v: torch.Tensor) -> torch.Tensor:
    """The same values with gaps behind those of each dimension."""
    if v.layout is not torch.strided or not v.dim():
        return v
    order = _refold_order(v)
    wide = v.new_empty([v.shape[axis] + 1 for axis in order])
    part = wide[tuple(slice(v.shape[axis]) for axis in order)]
    return part.permute([order.index(axis) for axis in range(v.dim())]).copy_(v)


def _with_channels_last(v: torch.Tensor) -> torch.Tensor:
    """The same values as PyTorch takes signals, images and volumes to lie with their channels last,
    or in rows if they do: what pools signals looks for this order alone."""
    if not _has_order(v) or v.dim() < 3:
        return _turned(v)
    order = (0, *range(2, v.dim()), 1)
    return v.contiguous() if _refold_order(v) == order else _ordered(v, order)


def _ordered(v: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same values with dimensions in memory from the first to the last of `order`."""
    return v.permute(order).contiguous().permute([order.index(axis) for axis in range(v.dim())])


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
