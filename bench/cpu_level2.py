"""A folder of reference files on one thread of the CPU: eager, torch.compile and refold.

    OMP_NUM_THREADS=1 python bench/cpu_level2.py KERNELBENCH/level2 [--only 1 57] [--seconds 0.01]

Each file's constants are halved, as `refold suite --shrink` does, until eager is predicted to take
so long. A file is a process of its own and a row of the table, which goes on where it was broken
off. Sides take turns; times are those of the processor, so that what else runs on the machine
counts little, in the mode in which a module is constructed, without gradients. The error against
float64 must be within an emitted file's bar: 1.5 times eager's and two units in the last place.

At the end: geometric means over the better of eager and torch.compile, as it is written, and as
`refold.optimize` leaves it where it measures (the original, where that is no slower).
"""

from __future__ import annotations

import argparse
import copy
import datetime
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import Record, commit
from torch.utils import _pytree as pytree

import refold
from refold.contract import load
from refold.suite.sizes import sizes

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "cpu_level2.csv"
COLUMNS = (
    *("file", "sizes", "error", "eager_error", "eager_ms", "compile_ms", "refold_ms"),
    *("to_eager", "to_better", "low", "high", "said", "date", "torch", "commit"),
)
ULP = 2.0**-23
OVER_THE_BAR = "its error is over the bar"


def clock(run: Callable[[], object], repeats: int) -> float:
    start = time.thread_time()
    for _ in range(repeats):
        run()
    return (time.thread_time() - start) / repeats


def errors(sides: dict[str, Callable[[], Any]], model: Any, inputs: list[Any]) -> dict[str, float]:
    """Root mean squares of the differences from float64, over that of the values."""

    def wide(tree: Any) -> Any:
        return pytree.tree_map_only(
            torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, tree
        )

    def leaves(tree: Any) -> torch.Tensor:
        found = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
        return torch.cat([t.double().reshape(-1) for t in found])

    torch.manual_seed(1)
    truth = leaves(copy.deepcopy(model).double()(*wide(inputs)))
    found = {}
    for name, run in sides.items():
        torch.manual_seed(1)
        found[name] = float((leaves(run()) - truth).norm() / truth.norm().clamp_min(1e-300))
    return found


def timed(path: Path, seconds: float, rounds: int) -> dict[str, object]:
    torch.set_num_threads(1)
    reference = load(path, sizes(path, seconds))
    model, inputs = reference.make(0), reference.inputs(0)
    row: dict[str, object] = {"file": path.stem}
    row["sizes"] = " ".join(f"{k}={v}" for k, v in reference.sets.items())
    with torch.no_grad():
        fast = refold.optimize(copy.deepcopy(model), *inputs, measure=False, convolutions="timed")
        compiled = torch.compile(copy.deepcopy(model))
        sides = {
            "eager": lambda: model(*inputs),
            "compile": lambda: compiled(*inputs),
            "refold": lambda: fast(*inputs),
        }
        error = errors(sides, model, inputs)
        status = refold.status(fast)
        said = "" if status.fast else f"the original: {status.reason}"
        if error["refold"] > 1.5 * error["eager"] + 2 * ULP:
            said = OVER_THE_BAR
        repeats = max(1, int(0.01 / min(clock(sides["eager"], 1) for _ in range(3))))
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for i in range(rounds):
            for name in list(sides) if i % 2 == 0 else reversed(sides):
                taken[name].append(clock(sides[name], repeats))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    row |= {f"{name}_ms": f"{1e3 * taken:.4f}" for name, taken in medians.items()}
    better = min(("eager", "compile"), key=medians.__getitem__)
    ratios = [a / b for a, b in zip(taken[better], taken["refold"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    row |= {"error": f"{error['refold']:.2e}", "eager_error": f"{error['eager']:.2e}"}
    row |= {"to_eager": f"{medians['eager'] / medians['refold']:.3f}", "said": said}
    row |= {"to_better": f"{medians[better] / medians['refold']:.3f}"}
    row |= {"low": f"{low:.3f}", "high": f"{high:.3f}"}
    return row


def summary(rows: list[dict[str, str]]) -> str:
    good = [r for r in rows if r["refold_ms"] and r["said"] != OVER_THE_BAR]
    if not good:
        return "no rows"
    written, kept = [], []
    for r in good:
        eager, best = float(r["eager_ms"]), min(float(r["eager_ms"]), float(r["compile_ms"]))
        written.append(best / float(r["refold_ms"]))
        kept.append(best / min(eager, float(r["refold_ms"])))

    def told(name: str, ratios: list[float]) -> str:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        slower = sum(r < 0.95 for r in ratios)
        return f"{name}: geometric mean {mean:.2f}, median {statistics.median(ratios):.2f}, " + (
            f"{slower} of {len(ratios)} below 0.95, least {min(ratios):.2f}"
        )

    return f"{told('as written', written)}\n{told('as kept', kept)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=None, metavar="NUMBER")
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=300, help="seconds a file may take")
    parser.add_argument("--output", type=Path, default=TABLE)
    parser.add_argument("--again", action="store_true", help="also files that have a row")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        row = timed(args.folder, args.seconds, args.rounds)
        row |= {"date": datetime.date.today().isoformat(), "torch": torch.__version__}
        Record(args.output).write([row])
        return
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder of reference files")
    record, found = Record(args.output), list[dict[str, Any]]()
    measured = commit()
    files = sorted(args.folder.glob("*.py"), key=lambda p: (len(p.stem.split("_")[0]), p.stem))
    had = {row["file"] for row in record.before}
    part = args.output.with_suffix(".part.csv")
    for path in files:
        if args.only is not None and path.stem.split("_")[0] not in args.only:
            continue
        if path.stem in had and not args.again:
            continue
        part.unlink(missing_ok=True)
        command = [sys.executable, __file__, str(path), "--one", "--output", str(part)]
        command += ["--seconds", str(args.seconds), "--rounds", str(args.rounds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
            failed = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        except subprocess.TimeoutExpired:
            failed = [f"took more than {args.limit:.0f} s"]
        made: dict[str, object] = {"file": path.stem, "said": "".join(failed)[:200]}
        made |= next(iter(Record(part).before), {})
        found.append({column: made.get(column, "") for column in COLUMNS} | {"commit": measured})
        record.write(found)
        print(*(made.get(k, "") for k in ("file", "to_eager", "to_better", "said")), flush=True)
    part.unlink(missing_ok=True)
    # the last row of a file counts
    print(summary(list({row["file"]: row for row in (*record.before, *found)}.values())))


if __name__ == "__main__":
    main()
