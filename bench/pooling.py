"""Pooling by itself, and with what is pointwise around it, beside eager and torch.compile.

    python bench/pooling.py [--seconds 1] [--threads 1] [--only NAME] [--device cpu]

One line for each case: median milliseconds of the three, and by how much refold's is ahead of the
better of the others, with the quartiles of the paired ratios. Sides take turns. The first rows have
the windows of KernelBench's level 1 (41 to 46) on smaller images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import refold
from refold.measure import Side, race


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    function: Callable[[torch.Tensor], torch.Tensor]


CASES = (
    Case("41 max 1-D 8, apart 3", (8, 48, 16384), lambda x: F.max_pool1d(x, 8, 1, 4, 3)),
    Case("42 max 2-D 4, step 1", (4, 16, 256, 256), lambda x: F.max_pool2d(x, 4, 1, 1, 1)),
    Case(
        "43 max 3-D 3, step 2, apart 3", (2, 8, 64, 64, 64), lambda x: F.max_pool3d(x, 3, 2, 1, 3)
    ),
    Case("44 mean 1-D 8, step 1", (8, 32, 16384), lambda x: F.avg_pool1d(x, 8, 1, 4)),
    Case("45 mean 2-D 11", (4, 16, 512, 512), lambda x: F.avg_pool2d(x, 11)),
    Case("46 mean 3-D 3, step 2", (4, 8, 64, 64, 64), lambda x: F.avg_pool3d(x, 3, 2, 1)),
    Case("max 2", (16, 64, 64, 64), lambda x: F.max_pool2d(x, 2)),
    Case("max 2, small image", (64, 128, 14, 14), lambda x: F.max_pool2d(x, 2)),
    Case("max 3, step 2", (8, 64, 112, 112), lambda x: F.max_pool2d(x, 3, 2, 1)),
    Case("mean 2", (16, 64, 64, 64), lambda x: F.avg_pool2d(x, 2)),
    Case("mean 3, step 1", (8, 64, 56, 56), lambda x: F.avg_pool2d(x, 3, 1, 1)),
    Case("adaptive mean 7", (16, 128, 28, 28), lambda x: F.adaptive_avg_pool2d(x, 7)),
    Case("max 2 of volumes", (2, 16, 32, 64, 64), lambda x: F.max_pool3d(x, 2)),
    Case("max 3, step 3", (8, 32, 96, 96), lambda x: F.max_pool2d(x, 3)),
    Case(
        "tanh, max 2, hardswish",
        (16, 64, 64, 64),
        lambda x: F.hardswish(F.max_pool2d(torch.tanh(x + 0.5), 2)),
    ),
    Case("gelu, max 2", (16, 64, 64, 64), lambda x: F.max_pool2d(F.gelu(x), 2)),
    Case("gelu, mean 3, step 1", (8, 64, 56, 56), lambda x: F.avg_pool2d(F.gelu(x), 3, 1, 1)),
    Case(
        "x * 2 + 1, mean 2, sigmoid",
        (16, 64, 64, 64),
        lambda x: F.avg_pool2d(x * 2 + 1, 2).sigmoid(),
    ),
)


class _Function(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def timed(case: Case, device: str, seconds: float) -> str:
    torch.manual_seed(0)
    module = _Function(case.function).eval()
    x = torch.randn(case.shape, device=device)
    fast = refold.optimize(module, x, measure=False)
    torch._dynamo.reset()
    compiled = torch.compile(module)
    with torch.no_grad():
        for side in (compiled, fast):
            torch.testing.assert_close(side(x), module(x), rtol=1e-4, atol=1e-5)
        bases = {"eager": Side(lambda: module(x)), "compile": Side(lambda: compiled(x))}
        times = race(bases, lambda: fast(x), device, seconds)
    better = min(times.values(), key=lambda t: t.base)
    found = [times["eager"].base, times["compile"].base, better.other]
    said = refold.status(fast).reason or ""
    return (
        f"{case.name:32} {' '.join(f'{t * 1e3:9.3f}' for t in found)}   {better.ratio:5.2f}"
        f" ({better.low:.2f} to {better.high:.2f}) {said}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{'':32} {'eager':>9} {'compile':>9} {'refold':>9}   over the better")
    for case in CASES:
        if given.only in case.name:
            print(timed(case, given.device, given.seconds), flush=True)


if __name__ == "__main__":
    main()
