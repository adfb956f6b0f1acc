"""Modules made fast, and called, by several threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

import refold


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(8, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.norm(self.map(x)))


def test_threads_optimize_side_by_side() -> None:
    """Captures change what the whole process has; side by side they broke it for good."""
    start = threading.Barrier(3)

    def made(width: int) -> tuple[nn.Module, torch.Tensor]:
        module, x = Net(width).eval(), torch.randn(4, 8)
        start.wait()
        fast = refold.optimize(module, x, measure=False)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
            fast(x.double().float().expand(2, 4, 8).contiguous())  # kernels for another form
        return fast, x

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(made, (8, 12, 16)))
    for fast, x in found:
        with torch.no_grad():
            fast(x)
        assert refold.status(fast).fast, refold.status(fast).reason
