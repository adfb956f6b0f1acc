"""The CPU's matrix product with its epilogue against eager, both sides alternately in one run.

    python bench/cpu_product.py [--seconds 2] [--threads 1] [--shapes 2048x4096x4096 ...]

Each line: batch, in -> out, GFLOP/s of eager and of ours (best runs), the median of the paired
ratio with its quartiles, both errors against float64. The module is Linear and ReLU, through the
same emission as any other. With one thread, times are the processor's time of that thread: what
else runs on the machine hardly counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from refold import introspect, pipeline
from refold.derive import Options
from refold.measure import Run

SHAPES = (
    *("1x4096x4096", "2x4096x4096", "4x4096x4096", "8x4096x4096", "12x4096x4096", "16x4096x4096"),
    *("64x4096x4096", "256x4096x4096", "2048x4096x4096", "1024x8192x8192", "128x16384x16384"),
    *("2048x4096x8", "2048x4096x24", "2048x4096x64", "2048x4096x128", "4096x512x512"),
    *("512x512x512", "200x512x384", "100x1000x100", "37x129x70", "64x64x64"),
)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got.double() - truth).norm() / truth.norm())


def clock(run: Run, timer: Callable[[], float], repeats: int) -> float:
    """Seconds per call."""
    start = timer()
    for _ in range(repeats):
        run()
    return (timer() - start) / repeats


def alternate(
    base: Run, other: Run, timer: Callable[[], float], seconds: float
) -> tuple[list[float], list[float]]:
    """Seconds per call of both sides, taken in the order ABBA, samples of 2 ms at least."""
    once = max(min(clock(run, timer, 1) for _ in range(3)) for run in (base, other))
    repeats = max(1, int(2e-3 / once))
    a: list[float] = []
    b: list[float] = []
    for i in range(max(5, min(200, int(seconds / (2 * once * repeats))))):
        for run, times in ((base, a), (other, b))[:: 1 if i % 2 == 0 else -1]:
            times.append(clock(run, timer, repeats))
    return a, b


def line(n: int, k: int, m: int, seconds: float) -> str:
    """What one shape gives: batch n, k features to m."""
    torch.manual_seed(0)
    target, device = pipeline.target_for("cpu")
    module = nn.Sequential(nn.Linear(k, m), nn.ReLU())
    x = torch.randn(n, k)
    result = pipeline.run(
        *(module, [x], "# Model is bound by the benchmark.", "product", target, device),
        Options(measure=False),
    )
    assert result.text is not None, result.reasons
    fast = pipeline.bind_for_class(result.text, module)
    timer = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        eager, ours = alternate(partial(module, x), partial(fast, x), timer, seconds)
        rows = slice(0, 64)  # the truth of all would take minutes
        w, b = (p.double() for p in module[0].parameters())
        truth = nn.functional.linear(x[rows].double(), w, b).relu()
        errors = error(fast(x)[rows], truth), error(module(x)[rows], truth)
    best = [2e-9 * n * k * m / min(t) for t in (eager, ours)]
    low, middle, high = statistics.quantiles((e / o for e, o in zip(eager, ours, strict=True)), n=4)
    return (
        f"{n:5d}, {k} -> {m}: eager {best[0]:6.1f} GFLOP/s, ours {best[1]:6.1f},"
        f" ratio {middle:.2f} [{low:.2f}, {high:.2f}], error {errors[1]:.2e}, ours {errors[0]:.2e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="BATCHxINxOUT")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for shape in args.shapes:
        n, k, m = map(int, shape.split("x"))
        print(line(n, k, m, args.seconds), flush=True)


if __name__ == "__main__":
    main()
