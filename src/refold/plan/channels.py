"""Which reductions one thread makes for each place: those over the channels of images, or over any
other axis before the last of which there are not too many."""

from __future__ import annotations

import torch

from refold.ir import OPS, Dim, Kind, Node, hint, numel

LEAST, MOST = 2, 1024  # elements that are reduced
_LEAST_INNER = 32  # places next to each other: what a warp reads at a time
_LEAST_PLACES = 4096  # in all: threads of a GPU
_NUMBERS = (torch.float32, torch.float64)


def channels_axis(node: Node) -> int | None:
    """The axis before the last over which a node is reduced, or normalized, place by place; None
    where other kernels do that better, or none does."""
    row = OPS[node.op]
    if row.kind is Kind.REDUCE and (row.reduction is not None or node.op in ("var", "logsumexp")):
        axes = [int(a) for a in node["axes"] if node.inputs[0].shape[a] != 1]
    elif node.op in ("softmax", "log_softmax"):
        axes = [int(node["axis"])]
    else:
        return None
    x = node.inputs[0]
    if len(axes) != 1 or axes[0] == -1 or node.dtype not in _NUMBERS or x.dtype != node.dtype:
        return None
    (axis,) = axes
    count, before, behind = hint(x.shape[axis]), x.shape[:axis], x.shape[axis + 1 :]
    inner = hint(numel(behind))
    if not LEAST <= count <= MOST or inner < _LEAST_INNER:
        return None
    if all(d == 1 for d in before) and sum(d != 1 for d in behind) < 2:
        return None  # the columns of a matrix
    if hint(numel(before)) * inner < max(_LEAST_PLACES, 32 * count):
        return None
    return axis


def whole_behind(shape: tuple[Dim, ...], dims: tuple[Dim, ...], axis: int) -> bool:
    """Does a value have all the places behind an axis, or one of them?"""
    return shape[axis + 1 :] == dims[axis + 1 :] or all(d == 1 for d in shape[axis + 1 :])


def of_places(dims: tuple[Dim, ...], axis: int) -> tuple[Dim, ...]:
    """The shape of one value a place."""
    return (*dims[:axis], 1, *dims[axis + 1 :])
