"""Copies of tensors for runs of the reference: laid alike, in float64, put back, plain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import beside
from refold.judge.truth.resident import RESIDENTS
from refold.judge.wire import frames, plain
from refold.judge.wire.meter import size_of, spanned
from refold.judge.wire.place import Place

_WIDE = (torch.float64, torch.complex128)


def unregistered(model: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors that modules hold as plain attributes."""
    for module in model.modules():
        hidden = {"_parameters", "_buffers", "_modules"}
        yield from tensors({k: v for k, v in vars(module).items() if k not in hidden})


def widen(value: Any) -> Any:
    """Floating and complex tensors of a tree in float64; others as they are."""
    return each_tensor(value, lambda t: t.to(_WIDE[t.is_complex()]) if inexact(t) else t)


def each_tensor(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(each_tensor(v, change) for v in value)
    if isinstance(value, dict):
        return {k: each_tensor(v, change) for k, v in value.items()}
    return value


@spanned("digest", size_of)
def digest(tensor: torch.Tensor) -> str:
    """Of a tensor's values."""
    return hashlib.blake2b(frames.view_bytes(tensor.cpu()), digest_size=16).hexdigest()


def _laid_alike(t: torch.Tensor, device: torch.device, offset: int) -> torch.Tensor:
    """A copy with the same strides: PyTorch sums in another order where elements lie apart. It
    begins as far behind the beginning of its memory as the worker's: some views need it even."""
    fresh = t.to(device, copy=True, memory_format=torch.preserve_format)
    lead = min(offset, frames.MOST_LEAD)
    if (fresh.stride() == t.stride() and not lead) or not t.numel():
        return fresh
    room = torch.empty(lead + frames.span(t), dtype=t.dtype, device=device)
    apart = room.as_strided(t.shape, t.stride(), lead)
    try:
        return apart.copy_(fresh)
    except RuntimeError:  # its elements overlap
        return fresh


@spanned("inputs copied", lambda value, *_, **__: size_of(value))
def duplicate(value: Any, device: torch.device, grad: bool = False, wide: bool = False) -> Any:
    """A copy that keeps strides; ``wide``: of floats in float64."""
    return _duplicate(value, device, grad, wide)


def _duplicate(value: Any, device: torch.device, grad: bool, wide: bool) -> Any:
    if isinstance(value, torch.Tensor):
        if any(st == 0 and s > 1 for s, st in zip(value.shape, value.stride(), strict=True)):
            fresh = value.to(device)
        else:
            fresh = _laid_alike(
                RESIDENTS.of(value, device).detach(), device, int(value.storage_offset())
            )
        fresh = widen(fresh) if wide else fresh
        return fresh.requires_grad_() if grad and inexact(fresh) else fresh
    if isinstance(value, list | tuple):
        return type(value)(_duplicate(v, device, grad, wide) for v in value)
    if isinstance(value, dict):
        return {k: _duplicate(v, device, grad, wide) for k, v in value.items()}
    return value


def copied_state(model: nn.Module, writes: frozenset[str]) -> dict[str, torch.Tensor]:
    """Copies of the buffers and of what else a forward writes."""
    found = dict(model.named_buffers())
    if writes:
        found |= {k: v for k, v in model.named_parameters() if k in writes}
    return {k: v.detach().clone() for k, v in found.items()}


Held = list[tuple[nn.Module, dict[str, torch.Tensor | None]]]


def held_buffers(model: nn.Module) -> Held:
    """The buffers of each part, as objects."""
    return [(part, dict(part._buffers)) for part in model.modules() if part._buffers]


def hold_again(held: Held) -> None:
    """Buffers that a call has exchanged for others: one that was made of float64 stays float64,
    and the next call in the model's own type meets it."""
    for part, buffers in held:
        for name, tensor in buffers.items():
            if name in part._buffers and part._buffers[name] is not tensor:
                part._buffers[name] = tensor


def put_back(model: nn.Module, buffers: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, held in (*model.named_buffers(), *model.named_parameters()):
            if name in buffers and buffers[name].shape == held.shape:
                held.copy_(buffers[name])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, NaN being equal to NaN."""
    return torch.equal(a, b) or torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


@spanned("inputs compared", size_of)
def unchanged(before: torch.Tensor, now: torch.Tensor) -> bool:
    """`_same`, of one that may have been widened since: part by part."""
    before = RESIDENTS.of(before, now.device)
    if before.is_complex() or before.dtype == now.dtype:
        return same(before.to(now), now)
    parts = beside.slices(before.numel(), now.device)
    return all(same(beside.piece(before, at).to(now), beside.piece(now, at)) for at in parts)


def plainly(tree: Any, place: Place) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.detach().to(
            place.like(tree),
            copy=True,
            memory_format=torch.contiguous_format,
        )
    tree = plain.opened(tree)
    if isinstance(tree, tuple):
        return tuple(plainly(v, place) for v in tree)
    if isinstance(tree, list):
        return [plainly(v, place) for v in tree]
    if isinstance(tree, dict):
        return {plain.key(k): plainly(v, place) for k, v in tree.items()}
    return plain.value(tree)
