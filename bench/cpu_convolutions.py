"""Convolutions on the CPU by our kernels, beside eager, torch.compile, and PyTorch's call.

    python bench/cpu_convolutions.py [--rounds 15] [--threads 1] [--only NAME]

One line for each case, milliseconds: eager; torch.compile; PyTorch's convolution with our kernels
for what follows ("call"); our kernels for all ("own"); own over call; and the faster of these two,
which is what timing takes, over the better of eager and torch.compile. Ratios are paired, with
their quartiles. Sides take turns. With one thread, times are those of the processor, so that what
else runs on the machine counts little. A number before a name is that of the file of KernelBench's
level 2 that is so computed, on smaller images.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import refold


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    convolution: Callable[[], nn.Module]
    after: Callable[[torch.Tensor], torch.Tensor]


CASES = (
    Case("1: 64 -> 128, relu", (4, 64, 32, 32), lambda: nn.Conv2d(64, 128, 3), F.relu),
    Case(
        "57: 8 -> 64, relu, hardswish",
        (4, 8, 32, 32),
        lambda: nn.Conv2d(8, 64, 3),
        lambda x: F.hardswish(F.relu(x)),
    ),
    Case("3 -> 32, gelu", (4, 3, 64, 64), lambda: nn.Conv2d(3, 32, 3), F.gelu),
    Case(
        "82: 8 -> 64, tanh, max 4",
        (4, 8, 32, 32),
        lambda: nn.Conv2d(8, 64, 3),
        lambda x: F.max_pool2d(torch.tanh(x) * 2 + 1, 4),
    ),
    Case(
        "35: 64 -> 128, hardswish, max 2",
        (4, 64, 32, 32),
        lambda: nn.Conv2d(64, 128, 3),
        lambda x: F.mish(F.max_pool2d(F.hardswish(x - 0.5), 2)),
    ),
    Case("64 -> 128, step 2, relu", (4, 64, 32, 32), lambda: nn.Conv2d(64, 128, 3, 2, 1), F.relu),
    Case("64 -> 128, 1 x 1, gelu", (4, 64, 32, 32), lambda: nn.Conv2d(64, 128, 1), F.gelu),
    Case("256 -> 256, 8 x 8, relu", (1, 256, 8, 8), lambda: nn.Conv2d(256, 256, 3, 1, 1), F.relu),
    Case(
        "64 -> 64, 4 groups, relu",
        (4, 64, 32, 32),
        lambda: nn.Conv2d(64, 64, 3, groups=4),
        F.relu,
    ),
    Case(
        "64 by itself, relu6",
        (4, 64, 32, 32),
        lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64),
        F.relu6,
    ),
    Case(
        "64 by itself, step 2, relu6",
        (4, 64, 56, 56),
        lambda: nn.Conv2d(64, 64, 5, 2, 2, groups=64),
        F.relu6,
    ),
    Case("32 -> 64 along a line, silu", (4, 32, 512), lambda: nn.Conv1d(32, 64, 5), F.silu),
    Case(
        "7: volumes 8 -> 32, gelu, sigmoid",
        (4, 8, 8, 16, 16),
        lambda: nn.Conv3d(8, 32, 3),
        lambda x: torch.sigmoid(F.gelu(F.leaky_relu(F.relu(x)))),
    ),
    Case(
        "2: transposed 64 -> 64, clamp",
        (4, 64, 32, 32),
        lambda: nn.ConvTranspose2d(64, 64, 3, 2, 1, 1),
        lambda x: (x.clamp(0, 1) * 2).clamp(0, 1) / 2,
    ),
    Case(
        "5: transposed 64 -> 64, tanh",
        (4, 64, 32, 32),
        lambda: nn.ConvTranspose2d(64, 64, 4, 2, 1, 1),
        lambda x: torch.tanh(x - 0.5),
    ),
    Case(
        "20: transposed volumes 32 -> 64",
        (4, 32, 4, 8, 8),
        lambda: nn.ConvTranspose3d(32, 64, 3, 2, 1, 1),
        lambda x: x * 2 + x * (x + 0.5),
    ),
)


class _Model(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.convolution, self.after = case.convolution(), case.after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.convolution(x))


def clock(run: Callable[[], object], repeats: int) -> float:
    """Seconds a call: of the processor, where there is one thread."""
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = now()
    for _ in range(repeats):
        run()
    return (now() - start) / repeats


def quartiles(above: list[float], below: list[float]) -> str:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def timed(case: Case, rounds: int) -> str:
    torch.manual_seed(0)
    module, x = _Model(case).eval(), torch.randn(case.shape)
    call, own = (
        refold.optimize(module, x, measure=False, convolutions=how) for how in ("library", "own")
    )
    torch._dynamo.reset()
    sides: dict[str, Any] = {
        "eager": module,
        "compile": torch.compile(copy.deepcopy(module)),
        "call": call,
        "own": own,
    }
    truth = copy.deepcopy(module).double()(x.double())
    for name, side in sides.items():
        error = (side(x).double() - truth).norm() / truth.norm()
        assert error < 1e-6, f"{case.name}: {name} is {error:.1e} from float64"
    for fast in (call, own):
        assert fast is module or refold.status(fast).reason is None
    repeats = max(1, int(0.01 / min(clock(lambda: module(x), 1) for _ in range(3))))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(rounds):
        for name in list(sides) if i % 2 == 0 else reversed(sides):
            taken[name].append(clock(lambda side=sides[name]: side(x), repeats))  # type: ignore
    medians = {name: statistics.median(times) for name, times in taken.items()}
    better = min(("eager", "compile"), key=medians.__getitem__)
    faster = "own" if medians["own"] < 0.97 * medians["call"] else "call"
    cells = [f"{1e3 * medians[name]:.3f}" for name in sides]
    cells += [quartiles(taken["call"], taken["own"]), faster]
    cells.append(quartiles(taken[better], taken[faster]))
    return f"| {case.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("| | eager | compile | call | own | own over call | faster | over the better |")
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        if given.only in case.name:
            with torch.no_grad():
                print(timed(case, given.rounds), flush=True)


if __name__ == "__main__":
    main()
