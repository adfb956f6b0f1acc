"""Times our convolutions beside PyTorch's library, whole emitted files of one convolution each.

    python bench/cuda_convolutions.py [--only NAME ...] [--write]

Each file is a convolution, its bias and a relu. The sides take turns: the library's from images as
they lie, without and with TF32, and with channels last; ours of both classes and tiles. Errors are
relative, of the first image against float64. `--write` adds to bench/results/cuda_convolutions.csv.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuda_matmul import sustained
from record import Record, gpu

from refold import pipeline
from refold.convolve import Way, ways
from refold.derive import Options
from refold.pipeline import bind_for_class

# images, channels, features, size, kernel: of KernelBench's level 2, by the number of the file
SHAPES = {
    "1": (128, 64, 128, 128, 3),
    "32": (64, 64, 128, 256, 3),
    "52": (64, 64, 128, 128, 3),
    "57": (128, 8, 64, 128, 3),
    "67": (128, 8, 64, 256, 3),
    "small images": (64, 256, 256, 14, 3),
    "pointwise": (32, 256, 64, 56, 1),
    "first layer": (64, 3, 64, 224, 7),
}
RESULTS = Path(__file__).parent / "results" / "cuda_convolutions.csv"
ROUNDS, SECONDS = 5, 0.02
CUDNN = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
Run = Callable[[], torch.Tensor]


def file_of(module: nn.Module, x: torch.Tensor, target: str, way: Way | None) -> nn.Module:
    """The twin of a module, its convolution computed in a way; None: by PyTorch's call."""
    choice = None if way is None else lambda convolution: way
    back, device = pipeline.target_for(target, "ieee", choice)
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(module, [x], "# Model is Sequential.", "x", back, device, options)
    assert result.text is not None, result.reasons
    return bind_for_class(result.text, module)


def sides(module: nn.Module, x: torch.Tensor) -> dict[str, tuple[bool, Run]]:
    """By name: whether TF32 is allowed, and the call."""
    last = copy.deepcopy(module)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x_last = x.to(memory_format=torch.channels_last)
    found: dict[str, tuple[bool, Run]] = {
        "eager fp32": (False, lambda: module(x)),
        "eager TF32": (True, lambda: module(x)),
        "eager TF32, channels last": (True, lambda: last(x_last)),
    }

    def add(name: str, allowed: bool, target: str, way: Way | None) -> None:
        fast = file_of(module, x, target, way)
        found[name] = allowed, lambda: fast(x)

    add("library and a kernel, TF32", True, "cuda:sm_90", None)
    for target in ("cuda:sm_80", "cuda:sm_90"):
        for schedule in ways():
            for kind in ("ieee", "tf32"):
                name = f"{target.removeprefix('cuda:')} {schedule.tile} {kind}"
                add(name, kind == "tf32", target, Way(schedule, kind))
    return found


def measure(name: str) -> list[dict[str, Any]]:
    count, channels, features, size, kernel = SHAPES[name]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(channels, features, kernel), nn.ReLU()).cuda().eval()
    x = torch.randn(count, channels, size, size, device="cuda")
    truth = copy.deepcopy(module).double()(x[:1].double())
    calls, errors = sides(module, x), dict[str, float]()
    times: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(ROUNDS):
        for side, (allowed, call) in calls.items():
            torch.backends.cudnn.allow_tf32 = allowed
            errors[side] = float((call()[:1] - truth).norm() / truth.norm())
            times[side].append(sustained(call, SECONDS))
    flops = 2 * count * features * (size - kernel + 1) ** 2 * channels * kernel**2
    rows = []
    for side, taken in times.items():
        us = statistics.median(taken)
        row = {"shape": name, "side": side, "us": f"{us:.1f}", "tflops": f"{flops / us / 1e6:.1f}"}
        row |= {"error": f"{errors[side]:.3g}", "cudnn": str(CUDNN)}
        print("  ".join(map(str, row.values())), flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    stamp, record, found = gpu(), Record(RESULTS), list[dict[str, Any]]()
    for name in args.only:
        with torch.no_grad():
            found += [stamp | row for row in measure(name)]
        if args.write:
            record.write(found)


if __name__ == "__main__":
    main()
