"""Tensors in other forms than an example's: where they lie, what marks they bear, their class.

A form is a function of a tensor and a source of random choices. It gives a tensor of the same shape
and dtype, or None where it has none. All keep the values but `spread` and `overlapping`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

Form = Callable[[torch.Tensor, random.Random], torch.Tensor | None]
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class Own(torch.Tensor):
    """A subclass that does nothing."""


# --- where it lies ------------------------------------------------------------------------------
def in_rows(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    return x.contiguous()


def in_another_order(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    if x.dim() < 2:
        return None
    order = draw.sample(range(x.dim()), x.dim())
    back = [order.index(axis) for axis in range(x.dim())]
    return x.permute(order).contiguous().permute(back)


def transposed(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    return x.mT.contiguous().mT if x.dim() > 1 else None


def channels_last(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    return x.contiguous(memory_format=_LAST[x.dim()]) if x.dim() in _LAST else None


def at_an_odd_address(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    begin = draw.choice((1, 2, 3, 5))
    return torch.zeros(x.numel() + begin, dtype=x.dtype)[begin:].view(x.shape).copy_(x)


def part_of_a_larger(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    """Gaps and steps in some dimensions, behind an odd beginning."""
    if not x.dim():
        return None
    cuts = []
    for n in x.shape:
        begin, step = draw.choice((0, 0, 1, 3)), draw.choice((1, 1, 2))
        cuts.append(slice(begin, begin + n * step, step))
    return torch.zeros([c.stop + 1 for c in cuts], dtype=x.dtype)[tuple(cuts)].copy_(x)


def one_of_several(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    """Part of a layer's result: rows lie apart."""
    if not x.dim():
        return None
    axis = draw.choice((-1, draw.randrange(x.dim())))
    whole = torch.cat([x, torch.zeros_like(x), x], axis)
    return whole.narrow(axis, draw.choice((0, 2 * x.shape[axis])), x.shape[axis])


def ones_with_odd_strides(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    if 1 not in x.shape or not x.numel():
        return None
    x = x.contiguous()
    known = zip(x.shape, x.stride(), strict=True)
    return x.as_strided(x.shape, [draw.choice((0, 1, 7, 1000)) if n == 1 else s for n, s in known])


def spread(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    """One number in all places of some dimensions."""
    axes = [i for i, n in enumerate(x.shape) if n > 1]
    shape = x.shape
    for axis in draw.sample(axes, draw.choice((1, len(axes)))) if axes else ():
        x = x.narrow(axis, 0, 1)
    return x.contiguous().expand(shape) if axes else None


def overlapping(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    """Windows of one row: each begins a little behind the one before."""
    if x.dim() < 2 or not x.numel():
        return None
    steps = [*(draw.choice((1, 2, 3)) for _ in x.shape[:-1]), 1]
    count = 1 + sum((n - 1) * s for n, s in zip(x.shape, steps, strict=True))
    return x.reshape(-1)[:count].clone().as_strided(x.shape, steps) if count <= x.numel() else None


# --- what it bears ------------------------------------------------------------------------------
def negated(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    return torch._neg_view(-x) if x.is_floating_point() else None


def made_for_inference(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    with torch.inference_mode():
        return x.clone(memory_format=torch.preserve_format)


def of_a_subclass(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    return x.as_subclass(Own)


def parameter(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    return nn.Parameter(x) if x.is_floating_point() else None


def with_gradient(x: torch.Tensor, draw: random.Random) -> torch.Tensor | None:
    return x.detach().requires_grad_() if x.is_floating_point() else None


PLACES: tuple[Form, ...] = (
    *(in_rows, in_another_order, transposed, channels_last, at_an_odd_address, part_of_a_larger),
    *(one_of_several, ones_with_odd_strides, spread, overlapping),
)
MARKS: tuple[Form, ...] = (negated, made_for_inference, of_a_subclass, parameter, with_gradient)


def formed(tree: Any, seed: int, marks: bool = True) -> tuple[Any, list[str]]:
    """A tree whose tensors lie in other places, at times with a mark, and what was chosen."""
    draw, told = random.Random(seed), []

    def one(x: torch.Tensor) -> torch.Tensor:
        forms = [draw.choice(PLACES)]
        forms += [draw.choice(MARKS)] if marks and draw.random() < 0.25 else []
        for form in forms:
            made = form(x, draw)
            told.append(form.__name__ if made is not None else "as it is")
            x = x if made is None else made
        return x

    return pytree.tree_map_only(torch.Tensor, one, tree), told


def parameters_formed(module: nn.Module, seed: int) -> list[str]:
    """Lays some parameters and buffers out anew, values and all; says which, and how."""
    draw, told = random.Random(seed), []
    for m in module.modules():
        for name, p in [*m._parameters.items(), *m._buffers.items()]:
            if p is None or draw.random() < 0.5:
                continue
            form = draw.choice([f for f in PLACES if f not in (spread, overlapping)])
            made = form(p.detach(), draw)
            if made is None:
                continue
            told.append(f"{name}: {form.__name__}")
            if draw.random() < 0.5 or name in m._buffers:
                p.data = made
            else:
                m._parameters[name] = nn.Parameter(made, p.requires_grad)
    return told
