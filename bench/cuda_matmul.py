"""Times the products beside cuBLAS, with both errors, and the same with fused epilogues.

    python bench/cuda_matmul.py [--seconds 0.3] [--write]

Sustained: back to back for `seconds`, after as long a warm-up, so that the power limit sets the
clocks. Cool: one call after 0.3 s of idling, with the second-level cache flushed. Variants come in
a random order. Errors are norms relative to a float64 product of some of the columns. `--write`
adds rows to bench/results/h200_matmul.csv.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import HERE, Record, gpu
from tests.gpu.library import Product, Split

Run = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    """A system's product: its schedule on Hopper and the body of its epilogue."""

    title: str
    rows: int
    cols: int
    depth: int
    schedule: str
    body: str

    @property
    def generic(self) -> str:
        return "generic_8" if self.schedule.endswith("_8") else "generic"


SHAPES = (
    Shape("S3 1024x8192x8192", 1024, 8192, 8192, "tall", "softmax"),
    Shape("S1 1024x512x8192", 1024, 512, 8192, "tall_8", "gelu_max"),
    Shape("S4 128x32768x32768", 128, 32768, 32768, "wide", "sigmoid_sum"),
    Shape("S2 16384x4096x4096", 16384, 4096, 4096, "tall", "moments"),
)
THIN = [(m, 8192, 8192) for m in (1, 4, 8, 16)] + [(16384, 16, 4096)]
FEW = [
    (1024, 512, 8192, "tall_8"),
    (4096, 512, 4096, "tall_2"),
    (16384, 512, 4096, "tall"),
    (16384, 256, 1024, "tall"),
    (16384, 128, 4096, "tall_2"),
    (65536, 128, 1024, "tall"),
]
FLUSH = 128 << 20


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def sustained(run: Run, seconds: float) -> float:
    """Microseconds a call, back to back under the power limit."""
    run()
    torch.cuda.synchronize()
    begin, end = events()
    begin.record()
    for _ in range(3):
        run()
    end.record()
    end.synchronize()
    calls = max(3, int(seconds * 3000 / begin.elapsed_time(end)))
    for _ in range(calls):
        run()
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls


def cool(run: Run, flush: torch.Tensor) -> float:
    """Microseconds of one call on an idle device, median of 3."""
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        time.sleep(0.3)
        flush.zero_()
        begin, end = events()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def error(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> float:
    """Relative norm of the error on up to 256 rows and 512 columns."""
    rows = torch.linspace(0, x.shape[0] - 1, min(256, x.shape[0]), device="cuda").long()
    cols = torch.linspace(0, w.shape[0] - 1, min(512, w.shape[0]), device="cuda").long()
    ref = x[rows].double() @ w[cols].double().T
    return float((out[rows][:, cols].double() - ref).norm() / ref.norm())


def cublas(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, tf32: bool = False) -> Run:
    def run() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32  # set for each call: variants are shuffled
        torch.mm(x, w.T, out=out)

    return run


def plain(mode: str, schedule: str, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Product:
    name = f"plain_{mode}_{schedule}" if schedule else f"plain_{mode}"
    return Product(name, Split(x, mode), Split(w, mode), (), (out,))


def products(shape: Shape, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    """The bare product by every library and schedule, fp32 in and out."""
    found: dict[str, Run] = {
        "cuBLAS fp32": cublas(x, w, out),
        "cuBLAS TF32": cublas(x, w, out, tf32=True),
    }
    for mode in ("ieee", "tf32"):
        found[f"plain {mode}"] = plain(mode, shape.schedule, x, w, out)
        found[f"generic {mode}"] = plain(mode, shape.generic, x, w, out)
    return found


def native(shape: Shape, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    """The same for 16-bit operands; cuBLAS rounds its output to them, ours is fp32."""
    found: dict[str, Run] = {}
    for mode, dtype in (("half", torch.float16), ("bfloat", torch.bfloat16)):
        a, b = x.to(dtype), w.to(dtype)
        found[f"cuBLAS {mode}"] = cublas(a, b, torch.empty_like(out, dtype=dtype))
        found[f"plain {mode}"] = plain(mode, shape.schedule, a, b, out)
        found[f"generic {mode}"] = plain(mode, "generic", a, b, out)
    return found


def fused(shape: Shape, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> dict[str, Run]:
    """The product with its system's epilogue, and with the splitting of x before it."""
    bias = torch.randn(shape.cols, device="cuda")
    vectors = [torch.empty(max(shape.rows, shape.cols), device="cuda") for _ in range(2)]
    outputs = (out, *vectors) if shape.body in ("softmax", "moments") else tuple(vectors)
    found: dict[str, Run] = {}
    for mode in ("ieee", "tf32"):
        a, b = Split(x, mode), Split(w, mode)
        product = Product(f"{shape.body}_{mode}_{shape.schedule}", a, b, (bias,), outputs)

        def with_split(a: Split = a, product: Product = product) -> None:
            a.renew()
            product()

        found[f"{shape.body} {mode}"] = product
        found[f"split x {mode}"] = a.renew
        found[f"split x + {shape.body} {mode}"] = with_split
    return found


def timed(runs: dict[str, Run], seconds: float) -> dict[str, tuple[float, float]]:
    """Sustained and cool microseconds of each, measured in a random order."""
    names = list(runs)
    random.shuffle(names)
    flush = torch.empty(FLUSH // 4, device="cuda")
    return {n: (sustained(runs[n], seconds), cool(runs[n], flush)) for n in names}


def row(title: str, name: str, times: tuple[float, float], **more: object) -> dict[str, object]:
    empty = {"tflops": "", "gb_per_s": "", "times_cublas": "", "error_randn": "", "error_rand": ""}
    us = {"sustained_us": round(times[0], 1), "cool_us": round(times[1], 1)}
    return {"shape": title, "variant": name, **us, **empty, **more}


def measure(shape: Shape, seconds: float) -> list[dict[str, object]]:
    out = torch.empty(shape.rows, shape.cols, device="cuda")
    errors: dict[str, list[str]] = {}
    runs: dict[str, Run] = {}
    for draw in (torch.rand, torch.randn):
        x = draw(shape.rows, shape.depth, device="cuda")
        w = draw(shape.cols, shape.depth, device="cuda") / shape.depth**0.5
        runs = products(shape, x, w, out)
        for name, run in runs.items():
            out.fill_(float("nan"))
            run()
            errors.setdefault(name, []).append(f"{error(out, x, w):.2e}")
    runs |= native(shape, x, w, out) | fused(shape, x, w, out)
    times = timed(runs, seconds)
    flops = 2.0 * shape.rows * shape.cols * shape.depth
    moved = {"ieee": 8.0, "tf32": 6.0}  # bytes that splitting an element reads and writes
    found = []
    for name in runs:
        us = times[name][0]
        more: dict[str, object] = {}
        if name.startswith("split x") and "+" not in name:
            more["gb_per_s"] = round(shape.rows * shape.depth * moved[name.split()[-1]] / us / 1e3)
        else:
            more["tflops"] = round(flops / us / 1e6, 1)
            more["times_cublas"] = round(times["cuBLAS fp32"][0] / us, 2)
        if name in errors:
            more["error_rand"], more["error_randn"] = errors[name]
        found.append(row(shape.title, name, times[name], **more))
    return found


def thin(rows: int, cols: int, depth: int, seconds: float) -> list[dict[str, object]]:
    """A small batch over big weights, by Plain: bytes of the weights a second."""
    x, w = torch.randn(rows, depth, device="cuda"), torch.randn(cols, depth, device="cuda")
    out = torch.empty(rows, cols, device="cuda")
    runs: dict[str, Run] = {"cuBLAS fp32": cublas(x, w, out), "plain": plain("simt", "", x, w, out)}
    errors = {}
    for name, run in runs.items():
        out.fill_(float("nan"))
        run()
        errors[name] = f"{error(out, x, w):.2e}"
    times = timed(runs, seconds)
    base = times["cuBLAS fp32"][0]
    return [
        row(
            f"{rows}x{cols}x{depth}",
            name,
            times[name],
            gb_per_s=round(4.0 * cols * depth / times[name][0] / 1e3),
            times_cublas=round(base / times[name][0], 2),
            error_randn=errors[name],
        )
        for name in runs
    ]


def few(rows: int, cols: int, depth: int, schedule: str, seconds: float) -> list[dict[str, object]]:
    """Few columns: x split by a pass before the product, and on its way to the tensor cores."""
    x = torch.rand(rows, depth, device="cuda")
    w = torch.randn(cols, depth, device="cuda") / depth**0.5
    out, b = torch.empty(rows, cols, device="cuda"), Split(w, "ieee")
    runs: dict[str, Run] = {
        "split by the product": Product(
            f"plain_ieee_{schedule}", Split(x, "ieee", late=True), b, (), (out,)
        ),
        "direct": Product(f"plain_direct_{schedule}", Split(x, "direct"), b, (), (out,)),
    }
    found = []
    for name, times in timed(runs, seconds).items():
        out.fill_(float("nan"))
        runs[name]()
        found.append(
            row(f"{rows}x{cols}x{depth}", name, times, error_rand=f"{error(out, x, w):.2e}")
        )
    return found


def reading_rate(seconds: float) -> list[dict[str, object]]:
    """What the device's memory gives: a copy, and a sum."""
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    runs: dict[str, Run] = {"copy 1 GB": lambda: y.copy_(x), "sum of 1 GB": lambda: x.sum()}
    moved = {"copy 1 GB": 8.0, "sum of 1 GB": 4.0}
    times = timed(runs, seconds)
    return [
        row("memory", n, times[n], gb_per_s=round(moved[n] * x.numel() / times[n][0] / 1e3))
        for n in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    parser.add_argument("--only", default="", help="part of a shape's title, thin or few")
    args = parser.parse_args()
    results = [r for s in SHAPES if args.only in s.title for r in measure(s, args.seconds)]
    if args.only in "thin":
        results += [r for t in THIN for r in thin(*t, args.seconds)]
        results += reading_rate(args.seconds)
    if args.only in "few":
        results += [r for f in FEW for r in few(*f, args.seconds)]
    for r in results:
        print(" | ".join(f"{v!s:>{24 if i < 2 else 9}}" for i, v in enumerate(r.values())))
    if args.write:
        stamp = gpu(args.commit)
        Record(HERE / "results" / "h200_matmul.csv").write([stamp | r for r in results])


if __name__ == "__main__":
    main()
