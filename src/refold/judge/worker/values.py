"""Values as steps give them to a model: widened, copied, scaled."""

from __future__ import annotations

from typing import Any

import torch

Tree = Any


def wide(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def fresh(value: Any, device: torch.device, to: torch.dtype | None, want: bool) -> Any:
    """A copy that keeps strides where they mean something."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if not any(s > 1 and st == 0 for s, st in zip(value.shape, value.stride(), strict=True)):
            value = value.clone()
        value = value.to(device)
        if to is not None and (value.is_floating_point() or value.is_complex()):
            value = wide(value) if value.is_complex() else value.to(to)
        return value.requires_grad_() if want and value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)([fresh(v, device, to, want) for v in value])
    if isinstance(value, dict):
        return {k: fresh(v, device, to, want) for k, v in value.items()}
    return value


def scaled(tree: Tree) -> Tree:
    """Twice the floating tensors."""
    if isinstance(tree, torch.Tensor):
        return tree * 2 if tree.is_floating_point() else tree
    if isinstance(tree, list | tuple):
        return type(tree)([scaled(v) for v in tree])
    if isinstance(tree, dict):
        return {k: scaled(v) for k, v in tree.items()}
    return tree
