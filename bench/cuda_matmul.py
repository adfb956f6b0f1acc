"""Times the Hopper product beside cuBLAS, with both errors, and the same with fused epilogues.

    python bench/cuda_matmul.py [--seconds 0.3] [--write]

Sustained: back to back for `seconds`, after as long a warm-up, so that the power limit sets the
clocks. Cool: one call after 0.5 s of idling, with the second-level cache flushed. Variants come in
a random order. Errors are norms relative to a float64 product of some of the columns. `--write`
adds rows to bench/results/cuda_matmul.csv.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.gpu.library import Product, Split

# rows, cols, depth, schedule of the plain product, (body, its schedule, outputs per row or column)
SHAPES = {
    "S3 1024x8192x8192": (1024, 8192, 8192, "tall", "softmax"),
    "S1 1024x512x8192": (1024, 512, 8192, "tall_8", "gelu_max"),
    "S4 128x32768x32768": (128, 32768, 32768, "wide", "sigmoid_sum"),
    "S2 16384x4096x4096": (16384, 4096, 4096, "tall", "moments"),
}
FLUSH = 128 << 20


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def sustained(run: Callable[[], object], seconds: float) -> float:
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


def cool(run: Callable[[], object], flush: torch.Tensor) -> float:
    """Microseconds of one call on an idle device, median of 3."""
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        time.sleep(0.5)
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


def measure(title: str, seconds: float) -> list[dict[str, object]]:
    rows, cols, depth, schedule, body = SHAPES[title]
    errors: dict[str, list[float]] = {}
    out = torch.empty(rows, cols, device="cuda")
    for draw in (torch.randn, torch.rand):
        x, w = draw(rows, depth, device="cuda"), draw(cols, depth, device="cuda") / depth**0.5
        torch.mm(x, w.T, out=out)
        errors.setdefault("cuBLAS fp32", []).append(error(out, x, w))
        for mode in ("ieee", "tf32"):
            out.fill_(float("nan"))
            Product(f"plain_{mode}_{schedule}", Split(x, mode), Split(w, mode), (), (out,))()
            errors.setdefault(f"plain {mode}", []).append(error(out, x, w))
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.mm(x, w.T, out=out)
        errors.setdefault("cuBLAS TF32", []).append(error(out, x, w))
        torch.backends.cuda.matmul.allow_tf32 = False

    x, w = torch.randn(rows, depth, device="cuda"), torch.randn(cols, depth, device="cuda") / 64
    bias = torch.randn(cols, device="cuda")
    vectors = [torch.empty(max(rows, cols), device="cuda") for _ in range(2)]
    stores = body in ("softmax", "moments")
    outputs = (out, *vectors) if stores else tuple(vectors)

    def cublas(tf32: bool) -> Callable[[], object]:
        def run() -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.mm(x, w.T, out=out)

        return run

    runs: dict[str, Callable[[], object]] = {
        "cuBLAS fp32": cublas(False),
        "cuBLAS TF32": cublas(True),
    }
    for mode in ("ieee", "tf32"):
        a, b = Split(x, mode), Split(w, mode)
        fused = Product(f"{body}_{mode}_{schedule}", a, b, (bias,), outputs)

        def with_split(a: Split = a, fused: Product = fused) -> None:
            a.renew()
            fused()

        runs[f"plain {mode}"] = Product(f"plain_{mode}_{schedule}", a, b, (), (out,))
        runs[f"{body} {mode}"] = fused
        runs[f"split x {mode}"] = a.renew
        runs[f"split x + {body} {mode}"] = with_split
    names = list(runs)
    random.shuffle(names)
    flush = torch.empty(FLUSH // 4, device="cuda")
    times = {n: (sustained(runs[n], seconds), cool(runs[n], flush)) for n in names}
    base = times["cuBLAS fp32"][0]
    flops = 2.0 * rows * cols * depth
    return [
        {
            "shape": title,
            "variant": n,
            "sustained_us": round(times[n][0], 1),
            "cool_us": round(times[n][1], 1),
            "tflops": round(flops / times[n][0] / 1e6, 1) if not n.startswith("split x ") else "",
            "times_cublas": round(base / times[n][0], 2),
            "error_randn": f"{errors[n][0]:.2e}" if n in errors else "",
            "error_rand": f"{errors[n][1]:.2e}" if n in errors else "",
        }
        for n in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="part of a shape's title")
    args = parser.parse_args()
    results = [r for t in SHAPES if args.only in t for r in measure(t, args.seconds)]
    for r in results:
        print(" | ".join(f"{v!s:>{24 if i < 2 else 9}}" for i, v in enumerate(r.values())))
    if args.write:
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,power.limit",
            "--format=csv,noheader",
        ]
        card = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        path = Path(__file__).parent / "results" / "cuda_matmul.csv"
        path.parent.mkdir(exist_ok=True)
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, ["date", "device", "torch", *results[0]])
            if fresh:
                writer.writeheader()
            stamp = {"date": time.strftime("%Y-%m-%d"), "device": card, "torch": torch.__version__}
            writer.writerows({**stamp, **r} for r in results)


if __name__ == "__main__":
    main()
