"""Times our convolutions beside PyTorch's library, whole emitted files of one convolution each.

    python bench/cuda_convolutions.py [--only NAME ...] [--targets cuda:sm_90] [--jobs N] [--write]

Each file is a convolution, its bias and a relu. The sides take turns: the library's from images as
they lie, without and with TF32, and with channels last; torch.compile's of both layouts; ours of
both classes and tiles. Errors are relative, of the first image against float64. `--jobs` builds so
many files side by side before anything is timed. `--write` adds to
bench/results/cuda_convolutions.csv; shapes that it has rows of, for this device and commit, are
left out.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuda_matmul import sustained
from record import Record, gpu

from refold import pipeline
from refold.convolve import Convolution, Way, candidates
from refold.derive import Options
from refold.devices import DEVICES
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
Side = tuple[bool, Run]


def file_of(module: nn.Module, x: torch.Tensor, target: str, way: Way | None) -> nn.Module:
    """The twin of a module, its convolution computed in a way; None: by PyTorch's call."""
    choice = None if way is None else lambda convolution: way
    back, device = pipeline.target_for(target, "ieee", choice)
    options = Options(measure=False, accuracy=False, convolutions="library")
    result = pipeline.run(module, [x], "# Model is Sequential.", "x", back, device, options)
    assert result.text is not None, result.reasons
    return bind_for_class(result.text, module)


def of_module(conv: Any, x: torch.Tensor) -> Convolution:
    made = conv(x[:1]).shape[2:]
    facts = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    channels = conv.in_channels, conv.out_channels, conv.groups
    return Convolution(x.shape[0], *channels, tuple(x.shape[2:]), tuple(made), *facts)


def ways(module: nn.Sequential, x: torch.Tensor, targets: list[str]) -> Iterator[tuple[Any, ...]]:
    """Of each file: its name, whether TF32 is allowed, the target, and how it convolves."""
    yield "library and a kernel, TF32", True, targets[-1], None
    c = of_module(module[0], x)
    for target in targets:
        for kind in ("ieee", "tf32"):
            for way in candidates(c, kind, DEVICES[target].features):
                name = f"{target.removeprefix('cuda:')} {way.schedule.kernels} {way.schedule.tile}"
                yield f"{name} {kind}", kind == "tf32", target, way


def sides(module: nn.Sequential, x: torch.Tensor, targets: list[str]) -> dict[str, Side]:
    """By name: whether TF32 is allowed, and the call."""
    last = copy.deepcopy(module)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x_last = x.to(memory_format=torch.channels_last)
    compiled, compiled_last = torch.compile(module), torch.compile(last)
    found: dict[str, Side] = {
        "eager fp32": (False, lambda: module(x)),
        "eager TF32": (True, lambda: module(x)),
        "eager TF32, channels last": (True, lambda: last(x_last)),
        "compile TF32": (True, lambda: compiled(x)),
        "compile TF32, channels last": (True, lambda: compiled_last(x_last)),
    }
    for name, allowed, target, way in ways(module, x, targets):
        found[name] = allowed, _of(file_of(module, x, target, way), x)
    return found


def _of(fast: nn.Module, x: torch.Tensor) -> Run:
    return lambda: fast(x)


def problem(name: str) -> tuple[nn.Sequential, torch.Tensor]:
    count, channels, features, size, kernel = SHAPES[name]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(channels, features, kernel), nn.ReLU()).cuda().eval()
    return module, torch.randn(count, channels, size, size, device="cuda")


def build(name: str, targets: list[str], turn: int) -> bool:
    """Compile one file of a shape; False where it has no such file."""
    module, x = problem(name)
    for i, (_, _, target, way) in enumerate(ways(module, x, targets)):
        if i == turn:
            file_of(module, x, target, way)(x)
            return True
    return False


def measure(name: str, targets: list[str]) -> list[dict[str, Any]]:
    count, channels, features, size, kernel = SHAPES[name]
    module, x = problem(name)
    truth = copy.deepcopy(module).double()(x[:1].double())
    calls, errors = sides(module, x, targets), dict[str, float]()
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


def build_all(names: list[str], targets: list[str], jobs: int) -> None:
    """In processes of their own, since each takes most of a minute."""

    def start(task: tuple[str, int]) -> None:
        command = [sys.executable, __file__, "--only", task[0], "--targets", *targets]
        done = subprocess.run(
            [*command, "--build", str(task[1])], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{task}: {done.stderr.strip()[-300:]}", file=sys.stderr, flush=True)

    most = 1 + 8 * len(targets)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start, [(name, turn) for name in names for turn in range(most)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    parser.add_argument("--targets", nargs="*", default=["cuda:sm_80", "cuda:sm_90"])
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--build", type=int, help="compile the file of that number, time nothing")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    args = parser.parse_args()
    if args.build is not None:
        with torch.no_grad():
            build(args.only[0], args.targets, args.build)
        return
    stamp, record, found = gpu(args.commit), Record(RESULTS), list[dict[str, Any]]()
    had = {(r.get("shape"), r.get("device"), r.get("commit")) for r in record.before}
    names = [n for n in args.only if (n, stamp["device"], stamp["commit"]) not in had]
    if args.jobs:
        build_all(names, args.targets, args.jobs)
    for name in names:
        with torch.no_grad():
            found += [stamp | row for row in measure(name, args.targets)]
        if args.write:
            record.write(found)


if __name__ == "__main__":
    main()
