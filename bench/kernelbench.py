"""KernelBench's problems on this machine: `refold suite` on a level, its rows beside other results.

    python bench/kernelbench.py PATH/TO/KernelBench 2 [--only 9 14] [--seconds 2 --no-compile ...]

The files ask for a large GPU. Here their constants are halved by one rule for all of them
(`refold/suite/sizes.py`); each row says which sizes were used. Options of `refold suite` are passed
on, so that a run that was broken off goes on. On a machine that others use too, OMP_NUM_THREADS=1
keeps threads from waiting for each other. Nothing of KernelBench is kept here: its files are read
from a checkout (github.com/ScalingIntelligence/KernelBench).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from record import Record, commit
from systems import HERE, machine

from refold import cli
from refold.suite.rows import ACCEPTED, Row, flat

EAGER_S = 0.05  # what eager's forward may take by prediction, on two cores


def lines(row: Row) -> Iterator[dict[str, Any]]:
    """A row of the suite as rows of the record, whose columns are older."""
    for line in flat(row):
        task, status, reason, _ = (line.pop(k) for k in ("task", "status", "reason", "verdict"))
        verdict = status if status == ACCEPTED and not reason else f"{status.lower()}: {reason}"
        yield {"system": task, "sizes": line.pop("sizes"), "verdict": verdict, **line}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", metavar="KERNELBENCH")
    parser.add_argument("level")
    parser.add_argument(
        "--record", type=Path, default=HERE / "results" / "kernelbench_cpu.csv", metavar="CSV"
    )
    args, rest = parser.parse_known_args()
    folder = HERE.parent / "out" / f"kernelbench_{args.level}"
    given = ["--kernelbench", args.root, "--level", args.level, "--shrink", str(EAGER_S)]
    code = cli.main(["suite", *given, "-o", str(folder), *rest])
    record = Record(args.record)
    where = machine() | {"threads": torch.get_num_threads(), "commit": commit()}
    rows = map(json.loads, (folder / "rows.jsonl").read_text().splitlines())
    found = {row["task"]: [line | where for line in lines(row)] for row in rows}
    replaced = {(name, where["commit"]) for name in found}
    record.before = [r for r in record.before if (r["system"], r["commit"]) not in replaced]
    record.write([line for each in found.values() for line in each])
    return code


if __name__ == "__main__":
    sys.exit(main())
