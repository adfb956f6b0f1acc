"""What a run of the reference gave: its tensors by name, how far two runs lie apart."""

from __future__ import annotations

from typing import Any

import torch

from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import compare
from refold.judge.truth.copies import widen
from refold.judge.truth.truth import Run


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
