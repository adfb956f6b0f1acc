"""The demo: five models become faster, each line with its verdict, its error and its speed.

    python bench/demo.py [S0 S1 ...]

On the GPU where there is one, at full size; else on the CPU, two of them at smaller sizes. The
emitted files stay in `out/`; open one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import torch
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from systems import PROBLEMS, SYSTEMS, machine, optimize, rows

from refold.report.terminal import seconds

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
        f"{row['speedup']:.2f}x" if row.get("speedup") else "",
    ]


def main() -> int:
    out = PROBLEMS.parent / "out"
    out.mkdir(exist_ok=True)
    console = Console()
    where = machine()
    on_gpu = torch.cuda.is_available()
    place = f"{where['cores']} cores, {where['capability']}"
    place = torch.cuda.get_device_name() if on_gpu else place
    table = Table(title=f"refold on {place}", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, side in COLUMNS.items():
        table.add_column(name, justify=side, no_wrap=True)
    chosen = [s for s in SYSTEMS if s.name in (sys.argv[1:] or [s.name])]
    codes, reasons = [0], []
    with Live(table, console=console, refresh_per_second=2):
        for system in chosen:
            table.caption = f"{system.name}: derived, compiled, judged and timed; a minute or two"
            sets = () if on_gpu else system.reduced
            report = optimize(system, sets, 2.0, out / f"{Path(system.file).stem}_fast.py")
            codes.append(report["exit"])
            for row in rows(system, report, sets):
                table.add_row(*cells(row))
                if not row.get("speedup"):
                    reasons.append(f"{row['system']} {row.get('mode', '')}: {row['verdict']}")
        smaller = [f"{s.name} with {', '.join(s.reduced)}" for s in chosen if s.reduced]
        but = f", but {'; '.join(smaller)}" if smaller and not on_gpu else ""
        table.caption = f"full size{but}"
    for reason in reasons:
        console.print(reason, markup=False, highlight=False)
    console.print(f"The files are in {out}. Each holds its own derivation: open one.")
    return max(0 if code == KEPT else code for code in codes)


if __name__ == "__main__":
    sys.exit(main())
