"""What a run of the reference gave: its tensors by name, how far two runs lie apart."""

from __future__ import annotations

from typing import Any

import torch

from refold.judge.draws.trees import differ, inexact, tensors
from refold.judge.rule import compare
from refold.judge.truth.copies import widen
from refold.judge.truth.truth import Run

_ROUNDINGS = 8.0


def named(run: Run) -> dict[str, torch.Tensor]:
    """Every tensor that a run gave, by the name of the output, buffer or gradient."""
    outputs = {n: t for n, t in compare.leaves(run.outputs) if isinstance(t, torch.Tensor)}
    return outputs | run.buffers | run.grads


def distance(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Root of the mean square and maximum of a difference, where both are finite."""
    if a.shape != b.shape:
        return 0.0, 0.0
    if not inexact(b):
        return 0.0, 0.0
    difference = (widen(a.to(b.device)) - widen(b)).abs()
    difference = difference[torch.isfinite(difference)]
    if not difference.numel():
        return 0.0, 0.0
    return float(difference.square().mean().sqrt()), float(difference.max())


def moved(now: Any, before: Any) -> bool:
    """Whether two trees of tensors lie further apart than a few roundings of their largest values:
    where a function does not depend on what was written, its roundings still do."""
    pairs = list(zip(tensors(now), tensors(before), strict=False))
    if not all(a.shape == b.shape and a.dtype == b.dtype and inexact(a) for a, b in pairs):
        return differ(now, before)
    for a, b in pairs:
        finite = b.abs()[torch.isfinite(b)]
        least = _ROUNDINGS * torch.finfo(b.dtype).eps * float(finite.max() if len(finite) else 0.0)
        if not torch.equal(a.isfinite(), b.isfinite()) or distance(a, b)[1] > least:
            return True
    return False


def cotangent(output: torch.Tensor, seed: int) -> torch.Tensor | None:
    """What a backward of an output starts from."""
    if not inexact(output):
        return None
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex64 if output.is_complex() else torch.float32
    return torch.randn(output.shape, generator=generator, dtype=dtype).to(output.dtype)


def mostly_finite(outputs: Any) -> bool:
    """Whether nearly all numbers of the outputs are finite."""
    floats = [t for t in tensors(outputs) if t.is_floating_point() and t.numel()]
    return all(bool(torch.isfinite(t).float().mean() > 0.9) for t in floats)
