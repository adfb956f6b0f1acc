"""Identical copies under load: ten references, each judged against itself with its clock.

    python bench/judge_copies.py [--runs 20] [--load 2] [--only linear norm]

While they are judged, busy loops run beside. None may be turned away and none may be said to cheat;
how fast a copy is may be INCONCLUSIVE. Exit code 1 says that one was.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from refold.judge import Limits, Verdict, judge

REFERENCES = Path(__file__).resolve().parents[1] / "tests" / "judge" / "references"
TEN = (
    *("linear", "norm", "dropout", "softmax", "embedding", "attention", "buffers", "several"),
    *("rowsum", "average"),
)

# it ends with the process that started it, however that ends
_LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    loops = [subprocess.Popen([sys.executable, "-IS", "-c", _LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def judged(reference: Path, seed: int, load: int) -> Verdict:
    """A reference against its copy, with so many busy loops beside."""
    with tempfile.TemporaryDirectory() as folder, busy(load):
        copy = Path(folder, "copy.py")
        copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
        limits = Limits(import_seconds=300, call_seconds=60)
        return judge(reference, copy, quick=True, seed=seed, device="cpu", limits=limits)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="of each reference")
    parser.add_argument("--load", type=int, default=2, help="busy loops beside")
    parser.add_argument("--only", nargs="*", default=list(TEN), metavar="REFERENCE")
    args = parser.parse_args()
    statuses: dict[str, Counter[str]] = {name: Counter() for name in args.only}
    speeds: dict[str, Counter[str]] = {name: Counter() for name in args.only}
    wrong = 0
    for i in range(args.runs):
        for name in args.only:
            verdict = judged(REFERENCES / f"{name}.py", i, args.load)
            wrong += not verdict.accepted
            statuses[name][verdict.status.value] += 1
            speeds[name][verdict.speed.value if verdict.speed else "not measured"] += 1
            for failure in verdict.failures:
                print(f"{name}, seed {i}, secret {verdict.secret}: {failure}")
            told = f"{dict(statuses[name])}, speed {dict(speeds[name])}"
            print(f"run {i}, {name}: {told}; {wrong} turned away", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
