"""KernelBench's problems on this machine: `refold optimize` on each file of a level, as CSV.

    python bench/kernelbench.py PATH/TO/KernelBench 2 [--only 9 14] [--seconds 2]
    python bench/kernelbench.py PATH/TO/KernelBench 2 --summary     # of the rows that are there

The files ask for a large GPU. Here their constants are halved by one rule for all of them (see
`sizes`); each row says which sizes were used. A number stands only where the same run's judge
accepted the file. A file that has rows of this commit is skipped, so that a run that was broken off
goes on (`--again` measures it anew); one that fails or hangs ends nothing. On a machine that others
use too, OMP_NUM_THREADS=1 keeps threads from waiting for each other. Nothing of KernelBench is kept
here: its files are read from a checkout (github.com/ScalingIntelligence/KernelBench).
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from record import Record, commit
from systems import System, machine, optimize, rows
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from refold.contract import ContractError, Reference, load

HERE = Path(__file__).resolve().parent
EAGER_S = 0.05  # what eager's forward may take by this prediction, on two cores
FLOPS = 1e11  # ... of products and convolutions in a second
BYTES = 1e9  # ... of parameters, inputs and every result in a second, memory being new
LEAST = 8  # no constant is halved below


class _Results(TorchDispatchMode):
    """The bytes of every operation's results."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.bytes += _bytes(result)
        return result


def _bytes(values: Any) -> int:
    tensors = [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


@dataclass(frozen=True)
class Shapes:
    """What a file has at given sizes, found without computing anything."""

    parameters: list[tuple[int, ...]]
    inputs: list[tuple[int, ...]]
    seconds: float  # predicted

    def kind(self, halved: Shapes) -> int | None:
        """What a constant that was halved counts: 0 rows, 1 places, 2 features; or nothing."""
        if halved.parameters != self.parameters:
            return 2
        if halved.inputs == self.inputs:
            return None
        return int([s[1:] for s in halved.inputs] != [s[1:] for s in self.inputs])


def shapes(reference: Reference) -> Shapes:
    """Raises what building or running the model on the meta device raises."""
    with torch.device("meta"), torch.no_grad():
        model, inputs = reference.make(0), reference.inputs(0)
        with FlopCounterMode(display=False) as products, _Results() as results:
            given = model(*inputs)
    if any(t.numel() == 0 for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)):
        raise ContractError("nothing is left of the result")
    held = list(model.state_dict().values())
    read = results.bytes + _bytes(inputs) + _bytes(held)
    return Shapes(
        [tuple(t.shape) for t in held],
        [tuple(t.shape) for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)],
        products.get_total_flops() / FLOPS + read / BYTES,
    )


def sizes(path: Path, seconds: float = EAGER_S) -> list[str]:
    """NAME=VALUE for each constant that is halved until eager is predicted to take ``seconds``.

    The largest whole number at the top of the file is halved first; of equals, one that counts
    rows of the inputs, then one that counts places (parameters keep their shapes), then features.
    One is left as it is where halving it changes no shape, or leaves no model that runs.
    """
    halved: dict[str, int] = {}
    fixed: set[str] = set()
    reference = load(path)
    now = shapes(reference)
    while now.seconds > seconds:
        ways: list[tuple[int, int, str, Reference, Shapes]] = []
        large = [
            (value, name)
            for name, value in reference.constants.items()
            if type(value) is int and value >= 2 * LEAST and value % 2 == 0 and name not in fixed
        ]
        for value, name in large:
            if value < max(large)[0]:
                continue
            try:
                less = load(path, halved | {name: value // 2})
                then = shapes(less)
            except Exception:  # whatever a model raises at sizes that it was not written for
                kind = None
            else:
                kind = now.kind(then)
            if kind is None:
                fixed.add(name)
            else:
                ways.append((kind, len(ways), name, less, then))
        if ways:
            _, _, name, reference, now = min(ways, key=lambda way: way[:2])
            halved.setdefault(name, max(large)[0])
            halved[name] //= 2
        elif not large:
            break
    return [f"{name}={value}" for name, value in halved.items()]


def files(root: Path, level: int, only: Sequence[int]) -> list[Path]:
    """The problems of a level in order; `root` is a checkout, or its folder of levels."""
    folder = next((p for p in (root / "KernelBench", root) if (p / f"level{level}").is_dir()), root)
    numbered = [(int(m[0]), p) for p in folder.glob(f"level{level}/*.py") if (m := _number(p))]
    return [p for number, p in sorted(numbered) if not only or number in only]


def _number(path: Path) -> re.Match[str] | None:
    return re.match(r"\d+", path.name)


def measured(
    path: Path, system: System, seconds: float, limit: float, more: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The rows of one file; of one that fails, a row that says why."""
    try:
        sets = sizes(path)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return list(rows(system, {"exit": 1, "error": f"no sizes: {said}"}, ()))
    with tempfile.TemporaryDirectory() as folder:
        report = optimize(system, sets, seconds, Path(folder, "fast.py"), limit, more)
    return list(rows(system, report, sets))


def line(found: Sequence[dict[str, Any]]) -> str:
    """One file's rows as one line."""
    told = []
    for row in found:
        if row.get("speedup"):
            best = row.get("best") or "eager"
            compiled = f", {float(row['to_best']):.2f} of {best}" if best != "eager" else ""
            error = f"error {_short(row['error'])} beside eager's {_short(row['eager_error'])}"
            told.append(
                f"{row['mode']} {row['verdict']} {float(row['speedup']):.2f} of eager"
                f" ({float(row['eager_ms']):.3g} ms){compiled}, {error}"
            )
        else:
            told.append(f"{row.get('mode') or 'both'} {row['verdict']}")
    return f"{found[0]['system']} [{found[0]['sizes']}]: " + "; ".join(told)


def _short(value: Any) -> str:
    return f"{float(value):.1e}" if value not in (None, "") else "?"


def summary(every: Sequence[dict[str, Any]]) -> str:
    """Counts and the mean, by the mode in which KernelBench runs a model: as constructed.

    every: rows of any commits; of a file, those of the last.
    """
    last: dict[str, list[dict[str, Any]]] = {}
    for row in every:
        had = last.get(row["system"])
        if had is None or had[0]["commit"] != row["commit"]:
            had = last[row["system"]] = []
        had.append(row)
    gains = {name: _gain(found) for name, found in last.items()}
    faster = [g for g in gains.values() if g > 1]
    failed = [name for name, found in last.items() if int(found[0]["exit"]) not in (0, 3)]
    mean = math.exp(statistics.fmean(map(math.log, gains.values()))) if gains else 1.0
    most = f", largest {max(faster):.3g}, median {statistics.median(faster):.3g}" if faster else ""
    return (
        f"of {len(last)} files: {len(faster)} accepted and faster{most};"
        f" {len(last) - len(faster) - len(failed)} kept or constant; {len(failed)} failed"
        + "".join(f" {name}" for name in failed)
        + "; geometric mean over the best baseline that was timed, a kept file counted as eager"
        + f" over it, all others as 1: {mean:.3g}"
    )


def _gain(found: Sequence[dict[str, Any]]) -> float:
    """How many times as fast as the best baseline a file is in the mode of a module as constructed.

    Where the original is kept it is eager's; without times it is 1. A result that does not depend
    on the input is never judged ACCEPTED, and is no gain.
    """
    for row in found:
        if row.get("mode") not in ("both", "train"):
            continue
        if row["verdict"] == "ACCEPTED" and row.get("speedup"):
            return float(row.get("to_best") or row["speedup"])
        if row["verdict"].startswith("kept") and row.get("to_best"):
            return float(row["to_best"])
    return 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, metavar="KERNELBENCH")
    parser.add_argument("level", type=int)
    parser.add_argument("--only", nargs="*", type=int, default=[], metavar="NUMBER")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each comparison")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a file may take")
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile baseline")
    parser.add_argument("--again", action="store_true", help="measure what has rows already, too")
    parser.add_argument("--summary", action="store_true", help="sum up what has rows; no measuring")
    parser.add_argument(
        "--output", type=Path, default=HERE / "results" / "kernelbench_cpu.csv", metavar="CSV"
    )
    args = parser.parse_args()
    record, found = Record(args.output), list[dict[str, Any]]()
    here = f"L{args.level}/"
    more = ["--no-compile"] * args.no_compile
    done = {row["system"] for row in record.before if row["commit"] == commit()}
    for path in files(args.root, args.level, args.only):
        system = System(f"{here}{path.stem}", str(path.resolve()))
        if args.summary or (system.name in done and not args.again):
            continue
        new = measured(path, system, args.seconds, args.limit, more)
        found += [row | machine() | {"threads": torch.get_num_threads()} for row in new]
        record.write(found)
        print(line(new), flush=True)
    every = [row for row in (*record.before, *found) if row["system"].startswith(here)]
    print(summary(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
