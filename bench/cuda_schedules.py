"""Times every schedule of a product beside cuBLAS: what refold/schedule.py's rule is fitted to.

    python bench/cuda_schedules.py [--mode ieee tf32 bfloat] [--write]

Bare products of operands that lie packed. All schedules of a shape are taken in a random order,
some milliseconds each, over and over: the device is under its power limit where the shape makes it.
Every result is compared with float64 (relative norm, some rows and columns) and with a second call,
to the bit. `--write` replaces the modes' rows of bench/results/h200_schedules.csv.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuda_matmul import cublas, events
from record import Record, gpu
from tests.gpu import library

from refold.schedule import WGMMA, Schedule, schedules

ROUNDS, SECONDS = 7, 4e-3
SHAPES = (
    *((32, 8192, 8192), (128, 8192, 8192), (256, 8192, 8192), (1024, 8192, 8192)),
    *((128, 4096, 4096), (256, 4096, 4096), (512, 4096, 4096), (1024, 4096, 4096)),
    *((4096, 4096, 4096), (16384, 4096, 4096), (128, 32768, 32768), (2048, 32000, 4096)),
    *((1024, 512, 8192), (256, 1024, 8192), (512, 512, 4096), (16384, 512, 4096)),
    *((1024, 1024, 1024), (2048, 2048, 2048), (8192, 1024, 1024), (2048, 8192, 2048)),
    *((384, 3072, 768), (4096, 768, 3072), (640, 5120, 5120), (16384, 256, 1024)),
    *((300, 520, 1000), (256, 256, 32768), (128, 128, 8192), (128, 512, 8192)),
    *((64, 512, 16384), (256, 1024, 16384), (512, 512, 16384)),
)
# C++ mode, body, dtype of operands and result, largest error
MODES = {
    "ieee": ("Ieee", "Copy", torch.float32, 6e-7),
    "tf32": ("Tf32", "Copy", torch.float32, 5e-4),
    "bfloat": ("Native<Bfloat>", "CopyNarrow<Bfloat>", torch.bfloat16, 4e-3),
}
RESULTS = Path(__file__).parent / "results" / "h200_schedules.csv"


def name(mode: str, s: Schedule) -> str:
    return f"{mode}_{s.tile}_{s.splits}"


def source(mode: str) -> str:
    """One entry a schedule."""
    text, body, _, _ = MODES[mode]
    lines = ['#include "bodies.cuh"', '#include "launch_sm90.cuh"', "using namespace rf;"]
    lines += [f"RF_ENTRY({name(mode, s)}, {body}, {s.text(text)})" for s in schedules(WGMMA)]
    return "\n".join(lines)


def built(modes: list[str]) -> Mapping[str, ctypes.CDLL]:
    """A library of each mode."""

    def build(mode: str) -> ctypes.CDLL:
        at = Path(folder, f"{mode}.cu")
        at.write_text(source(mode))
        library.compile_source(at, at.with_suffix(".o"))
        library.link([at.with_suffix(".o")], at.with_suffix(".so"))
        return ctypes.CDLL(str(at.with_suffix(".so")))

    with tempfile.TemporaryDirectory(prefix="refold_") as folder, ThreadPoolExecutor() as pool:
        return dict(zip(modes, pool.map(build, modes), strict=True))


def measure(mode: str, sizes: tuple[int, int, int], entries: ctypes.CDLL) -> list[dict[str, Any]]:
    """Microseconds of each schedule and of cuBLAS, and the errors."""
    rows, cols, depth = sizes
    _, _, dtype, bound = MODES[mode]
    x = torch.randn(rows, depth, device="cuda", dtype=dtype)
    w = torch.randn(cols, depth, device="cuda", dtype=dtype) / depth**0.5
    out = torch.empty(rows, cols, device="cuda", dtype=dtype)
    a, b = library.Split(x, mode), library.Split(w, mode)
    runs: dict[str, Callable[[], object]] = {"cublas": cublas(x, w, out, tf32=mode == "tf32")}
    for s in schedules(WGMMA):
        if depth >= 256 * s.splits:
            runs[f"{s.tile}_{s.splits}"] = library.Product(name(mode, s), a, b, (), (out,), entries)
    some = torch.linspace(0, rows - 1, min(256, rows), device="cuda").long()
    few = torch.linspace(0, cols - 1, min(256, cols), device="cuda").long()
    reference = x[some].double() @ w[few].double().T
    errors = {}
    for way, run in runs.items():
        out.fill_(float("nan"))
        run()
        kept = out.clone()
        run()
        errors[way] = float((out[some][:, few].double() - reference).norm() / reference.norm())
        if way != "cublas" and not (errors[way] < bound and torch.equal(out, kept)):
            raise RuntimeError(
                f"{mode} {way} {sizes}: error {errors[way]:.1e}, or not the same bits"
            )
    times: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(ROUNDS):
        for way in random.sample(list(runs), len(runs)):
            times[way].append(once(runs[way]))
    found = []
    for way, each in times.items():
        low, median, high = (round(t, 2) for t in statistics.quantiles(each, n=4))
        found.append(
            {"mode": mode, "rows": rows, "cols": cols, "depth": depth, "schedule": way}
            | {"us": median, "us_low": low, "us_high": high, "error": f"{errors[way]:.2e}"}
        )
    return found


def once(run: Callable[[], object]) -> float:
    """Microseconds a call, back to back for some milliseconds."""

    def timed(calls: int) -> float:
        begin, end = events()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls

    return timed(max(3, int(SECONDS / timed(3)))) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    # fp32 is split by the test kernels' library
    with ThreadPoolExecutor() as pool:
        tests = pool.submit(library.build)
        entries = built(args.mode)
        tests.result()
    stamp = gpu(args.commit)
    found = []
    for mode in args.mode:
        for sizes in SHAPES:
            rows = measure(mode, sizes, entries[mode])
            found += [stamp | row for row in rows]
            us = {row["schedule"]: row["us"] for row in rows}
            best = min((w for w in us if w != "cublas"), key=lambda w: us[w])
            title = f"{mode} {'x'.join(map(str, sizes))}"
            print(f"{title:26} cublas {us['cublas']:8} us, {best} {us[best]:8} us", flush=True)
    if args.write:
        record = Record(args.output)
        record.before = [row for row in record.before if row["mode"] not in args.mode]
        record.write(found)


if __name__ == "__main__":
    main()
