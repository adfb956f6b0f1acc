"""The demo: five models become faster, each line with its verdict, its error and its speed.

On the GPU where there is one, at full size; else on the CPU, three of them at smaller sizes.

The emitted files stay in `out/`; open one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table
from systems import PROBLEMS, SYSTEMS, machine, optimize, rows

from refold.report.terminal import seconds

COLUMNS = (
    "system",
    "mode",
    "verdict",
    "error",
    "eager's error",
    "eager",
    "torch.compile",
    "refold",
    "speed-up",
)


def main() -> int:
    out = PROBLEMS.parent / "out"
    out.mkdir(exist_ok=True)
    console = Console()
    where = machine()
    on_gpu = torch.cuda.is_available()
    place = f"{where['cores']} cores, {where['capability']}"
    table = Table(*COLUMNS, title=f"refold on {torch.cuda.get_device_name() if on_gpu else place}")
    codes = []
    with Live(table, console=console, refresh_per_second=2):
        for system in SYSTEMS:
            table.caption = f"{system.name}: derived, compiled, judged and timed; a minute or two"
            sets = () if on_gpu else system.reduced
            report = optimize(system, sets, 2.0, out / f"{Path(system.file).stem}_fast.py")
            codes.append(report["exit"])
            for row in rows(system, report, sets):
                if "refold_ms" not in row:
                    table.add_row(row["system"], row.get("mode", ""), str(row["verdict"]))
                    continue
                compiled = row["compile_ms"]
                error = row["error"], row["eager_error"]
                table.add_row(
                    f"{row['system']} ({row['sizes']})",
                    row["mode"],
                    row["verdict"],
                    *(f"{e:.1e}" if e is not None else "n/a" for e in error),
                    seconds(row["eager_ms"] / 1e3),
                    seconds(compiled / 1e3) if compiled else "n/a",
                    seconds(row["refold_ms"] / 1e3),
                    f"{row['speedup']:.2f}x",
                )
        table.caption = None
    console.print(f"The files are in {out}. Each holds its own derivation: open one.")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
