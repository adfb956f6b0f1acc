"""The demo: five models become faster, each line with its verdict, its error and its speed.

    python bench/demo.py [S0 S1 ...] [--full]

On the GPU where there is one, at full size and one model at a time. Else on the CPU, at sizes at
which eager takes one or two tenths of a second, and two models side by side: one is derived,
compiled or judged beside another, and who times is alone; each is a process that is forked from
one which has imported PyTorch (forked.py). `--full` takes the sizes of bench/results/cpu.csv.
The emitted files stay in `out/`; open one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import forked

ON_GPU = os.path.exists("/dev/nvidiactl")
if __name__ == "__main__" and not ON_GPU:
    forked.begin()  # beside the imports of this process

import torch  # noqa: E402
from rich import box  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.live import Live  # noqa: E402
from rich.table import Table  # noqa: E402
from systems import (  # noqa: E402
    PROBLEMS,
    SYSTEMS,
    System,
    arguments,
    machine,
    optimize,
    reported,
    rows,
)

from refold.report.terminal import seconds  # noqa: E402

KEPT = 3  # the exit code where the original is kept: no failure of the demo
COLUMNS: dict[str, Literal["left", "right"]] = {
    "system": "left",
    "mode": "left",
    "verdict": "left",
    "error": "right",
    "eager's": "right",
    "eager": "right",
    "compile": "right",
    "refold": "right",
    "speed-up": "right",
}


def cells(row: dict[str, Any]) -> list[str]:
    """One row of the benchmark as the table shows it."""
    word = str(row["verdict"]).partition(":")[0]
    errors = row.get("error"), row.get("eager_error")
    times = row.get("eager_ms"), row.get("compile_ms"), row.get("refold_ms")
    return [
        row["system"],
        row.get("mode", ""),
        word if len(word) <= 13 else "failed",  # reasons stand below the table
        *(f"{e:.1e}" if e is not None else "n/a" for e in errors),
        *(seconds(t / 1e3) if t else "n/a" for t in times),
        f"{row['speedup']:.{2 if row['speedup'] < 100 else 0}f}x" if row.get("speedup") else "",
    ]


def title() -> str:
    """What the table was measured on."""
    where = machine()
    place = f"{where['cores']} cores, {where['capability']}"
    return f"refold on {torch.cuda.get_device_name() if torch.cuda.is_available() else place}"


def clock(spent: float) -> str:
    """Minutes and seconds."""
    return f"{int(spent) // 60}:{int(spent) % 60:02}"


def is_slow() -> bool:
    """Is a product of float32 below 1e11 operations a second, as on two cores without AVX-512?"""
    a, product = torch.rand(1024, 1024), 2 * 1024**3
    spent = []
    for _ in range(4):  # the first one wakes the threads
        start = time.perf_counter()
        a @ a
        spent.append(time.perf_counter() - start)
    return product / min(spent) < 1e11


def installation() -> str:
    """How long `make` took to install what the demo runs in, where it did: see the Makefile."""
    said = Path(sys.prefix, "ready")
    text = said.read_text().strip() if said.exists() else ""
    return f"; installation, once: {clock(float(text))}" if text.isdigit() else ""


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("systems", nargs="*", default=[s.name for s in SYSTEMS])
    asked.add_argument("--full", action="store_true")
    args = asked.parse_args()
    began = time.monotonic()
    out = PROBLEMS.parent / "out"
    out.mkdir(exist_ok=True)
    console = Console()
    on_gpu = torch.cuda.is_available()
    chosen = [s for s in SYSTEMS if s.name in args.systems]

    slow = not on_gpu and is_slow()

    def sets(system: System) -> tuple[str, ...]:
        if on_gpu:
            return ()
        if args.full:
            return system.reduced
        return tuple(s.replace("size=512", "size=256") if slow else s for s in system.small)

    def run(system: System) -> dict[str, Any]:
        file = out / f"{Path(system.file).stem}_fast.py"
        if ON_GPU:
            return optimize(system, sets(system), 1.0, file)
        asked, turn = arguments(system, sets(system), 1.0, file), os.environ["REFOLD_TURNS"]
        return reported(*forked.refold(asked, {"REFOLD_TURNS": turn}))

    table = Table(title=title(), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, side in COLUMNS.items():
        table.add_column(name, justify=side, no_wrap=True)
    table.caption = "derived, compiled, judged and timed; about three minutes for all"
    codes, reasons = [0], []
    with (
        tempfile.TemporaryDirectory(prefix="refold_demo_") as turns,
        Live(table, console=console, refresh_per_second=2),
    ):
        os.environ["REFOLD_TURNS"] = turns
        with ThreadPoolExecutor(1 if on_gpu else 2) as pool:
            for system, report in zip(chosen, pool.map(run, chosen), strict=True):
                codes.append(report["exit"])
                for row in rows(system, report, sets(system)):
                    table.add_row(*cells(row))
                    if not row.get("speedup"):
                        reasons.append(f"{row['system']} {row.get('mode', '')}: {row['verdict']}")
        smaller = [f"{s.name} with {', '.join(sets(s))}" for s in chosen if sets(s)]
        table.caption = f"full size, but {'; '.join(smaller)}" if smaller else "full size"
    for reason in reasons:
        console.print(reason, markup=False, highlight=False)
    console.print(f"The files are in {out}. Each holds its own derivation: open one.")
    console.print(f"To the table: {clock(time.monotonic() - began)}{installation()}.")
    return max(0 if code == KEPT else code for code in codes)


if __name__ == "__main__":
    sys.exit(main())
