"""The judge on KernelBench's files, each against itself: ACCEPTED, or INCONCLUSIVE with a reason.

    python bench/judge_kernelbench.py PATH/TO/KernelBench [--level 1 2] [--only 9 14] [--shard 0/4]
    python bench/judge_kernelbench.py PATH/TO/KernelBench --summary     # of the rows that are there

The candidate is the file itself with Model renamed ModelNew, so any rejection and any crash is the
judge's. Sizes are halved by the rule of `refold suite --shrink` until eager is predicted to take
`--eager` seconds. A file that has a row is skipped, so that a run that was broken off goes on;
a file whose judgement ended the process has the row that says so. `--again` judges anew what was
not accepted. Shards write files of their own. Nothing of KernelBench is kept here: its files are
read from a checkout (github.com/ScalingIntelligence/KernelBench).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import Record, commit

from refold.judge import Limits, judge
from refold.suite.sizes import sizes
from refold.suite.tasks import kernelbench

HERE = Path(__file__).resolve().parent
ENDED = "CRASH"


def copy_of(text: str) -> str:
    """A file's text as a candidate."""
    return re.sub(r"\bModel\b", "ModelNew", text)


def judged(path: Path, eager: float, clock: bool) -> dict[str, Any]:
    """The row of one file."""
    began = time.monotonic()
    try:
        sets = sizes(path, eager)
        with tempfile.TemporaryDirectory() as folder:
            candidate = Path(folder, "copy.py")
            candidate.write_text(copy_of(path.read_text()))
            limits = Limits(import_seconds=300, call_seconds=60)
            verdict = judge(
                path, candidate, sets=sets, quick=True, timing=clock, device="cpu", limits=limits
            )
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return {"status": ENDED, "reason": said, "seconds": round(time.monotonic() - began, 1)}
    reasons = [f"{f.test}: {f.case}: {f.detail}" for f in verdict.failures]
    if not verdict.accepted and not reasons:
        reasons = [*verdict.task.reasons, *verdict.notes]
    left = [t.name for t in verdict.tests if "left out" in t.note]
    return {
        "status": verdict.status.value,
        "reason": " ".join("; ".join(reasons).split())[:400],
        "assumptions": "; ".join(verdict.assumptions),
        "left_out": "; ".join(left),
        "speed": verdict.speed.value if verdict.speed else "",
        "sizes": " ".join(sets),
        "seconds": round(time.monotonic() - began, 1),
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Counts by status, and every file that is not accepted."""
    counts = Counter(row["status"] for row in rows)
    lines = [f"{row['file']}: {row['status']}: {row['reason']}" for row in rows]
    bad = [line for line, row in zip(lines, rows, strict=True) if row["status"] != "ACCEPTED"]
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return "\n".join([*bad, f"of {len(rows)} files: {told}"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, metavar="KERNELBENCH")
    parser.add_argument("--level", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--only", nargs="*", type=int, default=[], metavar="NUMBER")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th file, from I on")
    parser.add_argument("--eager", type=float, default=0.003, help="seconds that eager may take")
    parser.add_argument("--clock", action="store_true", help="measure the speed, too")
    parser.add_argument("--again", action="store_true", help="judge what was not accepted anew")
    parser.add_argument("--summary", action="store_true", help="sum up what has rows")
    parser.add_argument(
        "--output", type=Path, default=HERE.parent / "out" / "judge_kernelbench", metavar="FOLDER"
    )
    args = parser.parse_args()
    index, of = map(int, args.shard.split("/"))
    record = Record(args.output / f"{index}_of_{of}.csv")
    tasks = kernelbench(args.root, args.level, args.only)
    every = [(task.name, task.path) for task in tasks][index::of]
    found = {row["file"]: row for row in record.before}
    record.before = []
    for name, path in every:
        had = found.get(name)
        if args.summary or (had and not (args.again and had["status"] != "ACCEPTED")):
            continue
        found[name] = {"file": name, "status": ENDED, "reason": "the process ended"}
        record.write(list(found.values()))
        found[name] = {"file": name, **judged(path, args.eager, args.clock), "commit": commit()}
        record.write(list(found.values()))
        row = found[name]
        print(f"{name}: {row['status']} {row['reason']} ({row['seconds']} s)", flush=True)
    rows = [found[name] for name, _ in every if name in found]
    print(summary(rows))
    return int(any(row["status"] not in ("ACCEPTED", "INCONCLUSIVE") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
