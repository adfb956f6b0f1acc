"""States: every parameter and buffer moved away from what the constructor drew."""

from __future__ import annotations

import math
from typing import Any

import torch

from refold.judge.draws.noise import Noise
from refold.judge.draws.trees import all_finite, inexact, mapped


def perturbed(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Every parameter and buffer changed, on the CPU; what was not negative stays so, counters move
    on."""
    noise = Noise(seed)
    result = {}
    for name, old in state.items():
        if old.is_complex() and old.numel():
            parts = torch.view_as_real(old.resolve_conj())
            result[name] = torch.view_as_complex(_moved(parts, noise.like(parts))).cpu()
        elif old.is_floating_point() and old.numel():
            result[name] = _moved(old, noise.like(old)).cpu()
        elif old.dtype in (torch.int64, torch.int32) and old.dim() == 0:
            result[name] = old.cpu() + 3 + seed % 4  # no two states have the same
        else:
            result[name] = old.cpu().clone()
    return result


def brief(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each floating value the power of two that is next to it, on the CPU."""

    def next_to(t: torch.Tensor) -> torch.Tensor:
        power = torch.exp2(t.abs().double().log2().round())
        new = torch.copysign(power, t.double()).to(t.dtype)
        return torch.where(torch.isfinite(t) & torch.isfinite(new), new, t)

    return {n: next_to(t.cpu()) if t.is_floating_point() else t.cpu() for n, t in state.items()}


def rolled(state: dict[str, torch.Tensor], shift: int) -> dict[str, torch.Tensor]:
    """Integer and boolean buffers with their last axis rolled: indices and masks stay such. What
    may be offsets, one after another in order, is left out."""
    found = {}
    for name, value in state.items():
        if inexact(value) or not value.dim() or value.shape[-1] < 2:
            continue
        old = value.cpu()
        if old.dim() == 1 and old.dtype != torch.bool and bool((old[1:] >= old[:-1]).all()):
            continue
        found[name] = old.roll(shift, -1)
    return found


def _moved(old: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Finite values moved by normal noise: by about a fifth of themselves and of their root mean
    square; where none is negative, by up to two fifths of themselves; zeros by a tenth."""
    noise = noise.to(torch.promote_types(old.dtype, noise.dtype))  # float64 keeps its bits
    finite, special, count = old, None, old.numel()
    if not all_finite(old):
        special = ~torch.isfinite(old)
        finite, count = old.masked_fill(special, 0.0), count - int(special.sum())
    size = _size(finite, count)
    if size == 0.0:
        new = noise.mul_(0.1)
    elif float(finite.amin()) >= 0.0:
        new = noise.tanh_().mul_(0.4).add_(1.0).mul_(finite)
    else:
        new = noise.tanh().mul_(0.2).add_(1.0).mul_(finite).add_(noise, alpha=0.2 * size)
    new = new.to(old.dtype)
    return new if special is None else torch.where(special, old, new)


def _size(finite: torch.Tensor, count: int) -> float:
    """The root mean square of ``count`` values; the others are zero."""
    norm = float(torch.linalg.vector_norm(finite))
    if math.isinf(norm):  # of numbers whose squares overflow
        norm = float(torch.linalg.vector_norm(finite, dtype=torch.float64))
    return norm / math.sqrt(count) if count else 0.0


def _integers(shape: torch.Size, low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Integers from low to high - 1, few enough for 24 bits, as float32: `randint` takes 22 ns for
    each."""
    return torch.rand(shape, generator=generator).mul_(high - low).floor_().add_(low)


def lattice(
    inputs: list[Any], state: dict[str, torch.Tensor], seed: int
) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Odd 13-bit integers in the inputs, -1, 0, 1 in the state.

    Sums of up to 2^11 products are exact in float32 in every order; ten-bit operands are not.
    """
    generator = torch.Generator().manual_seed(seed)

    def odd(t: torch.Tensor) -> torch.Tensor:
        drawn = _integers(t.shape, -3072, 3072, generator)
        # odd, from -8191 to -2049 or from 2049 to 8191
        return torch.where(drawn < 0, 2 * drawn - 2047, 2 * drawn + 2049).to(t.dtype)

    new = {}
    for name, value in state.items():
        if value.is_floating_point():
            new[name] = _integers(value.shape, -1, 2, generator).to(value.dtype)
        else:
            new[name] = value.cpu().clone()
    return mapped(inputs, odd), new


def signed(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Floating tensors from a normal distribution of one and a half times their root mean square,
    of both signs, on the CPU."""
    noise = Noise(seed)
    result = {}
    for name, old in state.items():
        if old.is_floating_point() and old.numel() and all_finite(old):
            size = _size(old, old.numel()) or 0.1
            result[name] = noise.like(old).mul_(1.5 * size).to(old.dtype).cpu()
        else:
            result[name] = old.cpu().clone()
    return result
