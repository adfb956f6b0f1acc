"""Values as steps give them to a model: widened, copied, scaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from refold.judge import draws
from refold.judge.draws.layouts import otherwise_laid
from refold.judge.wire import frames
from refold.judge.wire.plain import record, refilled
from refold.judge.worker.leaves import tensors

Tree = Any


def wide(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


class Named(torch.Tensor):
    """A class of somebody's own, as units and names of axes have; it does nothing of its own."""


def _inference(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.clone()


# of floating inputs
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "parameters": lambda t: nn.Parameter(t.detach(), requires_grad=False),
    "inference tensors": _inference,
    "a subclass": lambda t: t.as_subclass(Named),
    "in other strides": otherwise_laid,
    "whole numbers of int64": lambda t: (t.nan_to_num(0, 0, 0) * 8).clamp(-9e3, 9e3).long(),
}


def plain(tree: Tree) -> Tree:
    """Tensors without their own class."""
    return draws.every(tree, lambda t: t.as_subclass(torch.Tensor) if isinstance(t, Named) else t)


def rounded(model: nn.Module, to: torch.dtype) -> None:
    """Parameters and buffers of float64 with the values that they have in another type."""
    with torch._C.DisableTorchFunction():  # the float64 run's mode makes every type float64
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(to).double()


def narrowed(t: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Real numbers as another type has them; what leaves its range as it is."""
    with torch._C.DisableTorchFunction():  # see `rounded`
        there = t.to(to).to(t.dtype)
    return torch.where(torch.isfinite(there), there, t)


def fresh(value: Any, device: torch.device, to: torch.dtype | None, want: bool) -> Any:
    """A copy that keeps strides where they mean something."""
    if isinstance(value, torch.Tensor):
        value = _copy(value.detach()).to(device)
        if to is not None and (value.is_floating_point() or value.is_complex()):
            value = wide(value) if value.is_complex() else value.to(to)
        return value.requires_grad_() if want and draws.inexact(value) else value
    if isinstance(value, list | tuple):
        return type(value)([fresh(v, device, to, want) for v in value])
    if isinstance(value, dict):
        return {k: fresh(v, device, to, want) for k, v in value.items()}
    return value


def _copy(value: torch.Tensor) -> torch.Tensor:
    """In memory of its own, with the strides that it has."""
    if any(s > 1 and st == 0 for s, st in zip(value.shape, value.stride(), strict=True)):
        return value
    copy = value.clone()
    if copy.stride() == value.stride() or not value.numel():
        return copy
    room = torch.zeros(frames.span(value), dtype=value.dtype, device=value.device)
    return room.as_strided(value.shape, value.stride()).copy_(value)


def first(tree: Tree, rows: int) -> Tree:
    """So many rows of each tensor that has as many as the first one."""
    held = tensors(tree)
    batch = held[0].shape[0]
    return draws.every(tree, lambda t: t[:rows] if t.dim() and t.shape[0] == batch else t)


def scaled(tree: Tree) -> Tree:
    """Twice the floating tensors."""
    if isinstance(tree, torch.Tensor):
        return tree * 2 if tree.is_floating_point() else tree
    if isinstance(tree, list | tuple):
        return type(tree)([scaled(v) for v in tree])
    if isinstance(tree, dict):
        return {k: scaled(v) for k, v in tree.items()}
    return tree if record(tree) is None else refilled(tree, scaled)
