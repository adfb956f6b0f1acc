"""Times our convolutions beside PyTorch's library, whole emitted files of one convolution each.

    python bench/cuda_convolutions.py [--only NAME ...] [--targets cuda:sm_90] [--write]
    python bench/cuda_convolutions.py --build FOLDER [--only NAME ...] [--jobs N]
    python bench/cuda_convolutions.py --built FOLDER [--only NAME ...] [--write]

Each file is a convolution, its bias and a relu. The sides take turns: the library's from images as
they lie, without and with TF32, and with channels last; torch.compile's of both layouts; ours of
both classes and all tiles. Errors are relative, of the first image against float64; a side whose
error is not that of its class is told. `--build` writes our files into a folder and compiles them,
without a GPU (`--likely`: one tile of each kernel, `--like`: of some); `--built` times what lies in
such a folder, and compiles nothing. `--seconds` stops before the next shape. `--write` adds to
bench/results/cuda_convolutions.csv; shapes that it has rows of, for this device and commit, are
left out. Names are those of cuda_convolution_shapes.py.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuda_convolution_shapes import SHAPES
from cuda_matmul import sustained
from record import Record, gpu

from refold import introspect, pipeline
from refold.build import build, write
from refold.convolve import Algorithm, Convolution, candidates
from refold.derive import Options
from refold.devices import DEVICES
from refold.emit.load import load_text
from refold.tune_images import likely

RESULTS = Path(__file__).parent / "results" / "cuda_convolutions.csv"
ROUNDS, SECONDS = 5, 0.02
MOST_ERROR = {False: 1e-6, True: 5e-4}  # by whether TF32 is allowed
CUDNN = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
Run = Callable[[], torch.Tensor]
Side = tuple[bool, Run]


def text_of(module: nn.Module, x: torch.Tensor, target: str, way: Algorithm | None) -> str:
    """The file of a module, its convolution computed in a way; None: by PyTorch's call."""
    choice = None if way is None else lambda convolution: way
    back, device = pipeline.target_for(target, "ieee", choice)
    options = Options(measure=False, accuracy=False, convolutions="library")
    result = pipeline.run(
        module, [x], "from torch.nn import Sequential as Model", "x", back, device, options
    )
    assert result.text is not None, result.reasons
    return result.text


def of_module(conv: Any, x: torch.Tensor) -> Convolution:
    made = conv.to("meta")(x[:1].to("meta")).shape[2:]
    facts = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    longer = conv.output_padding if conv.transposed else None
    channels = conv.in_channels, conv.out_channels, conv.groups
    return Convolution(x.shape[0], *channels, tuple(x.shape[2:]), tuple(made), *facts, longer)


def ways(
    module: nn.Sequential,
    x: torch.Tensor,
    targets: list[str],
    every: bool = True,
    like: str = "*",
    images: tuple[int, ...] = (),
) -> Iterator[tuple[Any, ...]]:
    """Of each file: its name, whether TF32 is allowed, the target, and how it convolves. every: all
    tiles of a kernel, not only the one that should take least time. like: a pattern of names.
    images: their sizes, where `x` has fewer."""
    yield "library and a kernel, TF32", True, targets[-1], None
    c = of_module(copy.deepcopy(module[0]), x.new_empty(1).expand(images or x.shape))
    for target in targets:
        for kind in ("ieee", "tf32"):
            for way in (candidates if every else likely)(c, kind, DEVICES[target].features):
                tile = f"{way.schedule.kernels} {way.schedule.tile}"
                name = f"{target.removeprefix('cuda:')} {tile} {kind}"
                if fnmatch(name, like):
                    yield name, kind == "tf32", target, way


def file_of(folder: Path, name: str, side: str) -> Path:
    return folder / f"{name}, {side}.py".replace(" ", "_")


def sides(name: str, targets: list[str], built: Path | None) -> dict[str, Side]:
    """By name: whether TF32 is allowed, and the call."""
    module, x = problem(name, "cuda")
    kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    compiled = torch.compile(module)
    found: dict[str, Side] = {
        "eager fp32": (False, lambda: module(x)),
        "eager TF32": (True, lambda: module(x)),
        "compile TF32": (True, lambda: compiled(x)),
    }
    if kind is not None:
        last = copy.deepcopy(module)
        last.to(memory_format=kind)  # type: ignore[call-overload]
        x_last, compiled_last = x.to(memory_format=kind), torch.compile(last)
        found["eager TF32, channels last"] = True, lambda: last(x_last)
        found["compile TF32, channels last"] = True, lambda: compiled_last(x_last)
    for side, allowed, target, way in ways(module, x, targets):
        if built is None:
            fast = _fast(text_of(module, x, target, way), module)
        else:
            file = file_of(built, name, side)
            if not file.exists():
                continue
            fast = _fast(file.read_text(), module, file)
        found[side] = allowed, _of(fast, x)
    return found


def _fast(text: str, module: nn.Module, file: Path | None = None) -> nn.Module:
    names = {"Model": type(module)} | ({} if file is None else {"__file__": str(file)})
    return pipeline.adopt(load_text(text, names).ModelNew, module)


def _of(fast: nn.Module, x: torch.Tensor) -> Run:
    def run() -> torch.Tensor:
        result: torch.Tensor = fast(x)
        return result

    assert introspect.fallback_reason(fast, [x]) is None or not torch.backends.cudnn.allow_tf32
    return run


def problem(name: str, device: str) -> tuple[nn.Sequential, torch.Tensor]:
    conv, images = SHAPES[name]
    torch.manual_seed(0)
    module = nn.Sequential(conv(), nn.ReLU()).to(device).eval()
    if device == "cpu":
        return module, torch.randn(2, *images[1:])  # how many there are, a file is not told
    return module, torch.randn(images, device=device)


def measure(name: str, targets: list[str], built: Path | None) -> list[dict[str, Any]]:
    module, x = problem(name, "cuda")
    truth = copy.deepcopy(module).double()(x[:1].double())
    c = of_module(copy.deepcopy(module[0]), x)
    torch.backends.cudnn.allow_tf32 = True
    calls, errors = sides(name, targets, built), dict[str, float]()
    times: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(ROUNDS):
        for side, (allowed, call) in calls.items():
            torch.backends.cudnn.allow_tf32 = allowed
            errors[side] = float((call()[:1] - truth).norm() / truth.norm())
            times[side].append(sustained(call, SECONDS))
    flops = 2 * c.products
    rows = []
    for side, taken in times.items():
        us = statistics.median(taken)
        row = {"shape": name, "side": side, "us": f"{us:.1f}", "tflops": f"{flops / us / 1e6:.1f}"}
        row |= {"error": f"{errors[side]:.3g}", "cudnn": str(CUDNN)}
        wrong = "" if errors[side] <= MOST_ERROR[calls[side][0]] else "  WRONG"
        print("  ".join(map(str, row.values())) + wrong, flush=True)
        rows.append(row)
    return rows


def build_all(
    names: list[str],
    targets: list[str],
    jobs: int,
    folder: Path,
    every: bool,
    like: str,
) -> None:
    """Texts one after another, since captures must not run side by side; then their libraries."""

    def start(file: Path) -> None:
        try:
            write(build(file), folder)
        except Exception as error:
            print(f"{file.name}: {error}", file=sys.stderr, flush=True)

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in names:
        module, x = problem(name, "cpu")
        for side, _, target, way in ways(module, x, targets, every, like, SHAPES[name][1]):
            file, text = file_of(folder, name, side), text_of(module, x, target, way)
            if file.exists() and file.read_text() == text:
                continue
            file.write_text(text)
            files.append(file)
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        list(pool.map(start, files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    parser.add_argument("--targets", nargs="*", default=["cuda:sm_80", "cuda:sm_90"])
    parser.add_argument("--jobs", type=int, default=1, help="compilers side by side")
    parser.add_argument("--build", type=Path, help="compile into a folder, time nothing")
    parser.add_argument("--likely", action="store_true", help="of each kernel one tile alone")
    parser.add_argument("--like", default="*", help="kernels whose name is of this pattern")
    parser.add_argument("--built", type=Path, help="time what was compiled into a folder")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no shape after so many")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    args = parser.parse_args()
    if args.build is not None:
        with torch.no_grad():
            build_all(args.only, args.targets, args.jobs, args.build, not args.likely, args.like)
        return
    stamp, record, found = gpu(args.commit), Record(RESULTS), list[dict[str, Any]]()
    had = {(r.get("shape"), r.get("device"), r.get("commit")) for r in record.before}
    end = time.monotonic() + args.seconds
    for name in args.only:
        if (name, stamp["device"], stamp["commit"]) in had or time.monotonic() > end:
            continue
        with torch.no_grad():
            try:
                found += [stamp | row for row in measure(name, args.targets, args.built)]
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
        torch.compiler.reset()
        torch.cuda.empty_cache()
        if args.write:
            record.write(found)


if __name__ == "__main__":
    main()
