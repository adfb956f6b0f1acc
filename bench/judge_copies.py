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

from refold.judge import Limits, judge

REFERENCES = Path(__file__).resolve().parents[1] / "tests" / "judge" / "references"
TEN = (
    *("linear", "norm", "dropout", "softmax", "embedding", "attention", "buffers", "several"),
    *("rowsum", "average"),
)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    loops = [
        subprocess.Popen([sys.executable, "-IS", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="of each reference")
    parser.add_argument("--load", type=int, default=2, help="busy loops beside")
    parser.add_argument("--only", nargs="*", default=list(TEN), metavar="REFERENCE")
    args = parser.parse_args()
    wrong = 0
    for name in args.only:
        reference = REFERENCES / f"{name}.py"
        statuses: Counter[str] = Counter()
        speeds: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder, busy(args.load):
            copy = Path(folder, "copy.py")
            copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
            for i in range(args.runs):
                limits = Limits(import_seconds=300, call_seconds=60)
                verdict = judge(reference, copy, quick=True, seed=i, device="cpu", limits=limits)
                statuses[verdict.status.value] += 1
                speeds[verdict.speed.value if verdict.speed else "not measured"] += 1
                for failure in verdict.failures:
                    print(f"{name}, seed {i}, secret {verdict.secret}: {failure}", flush=True)
        wrong += args.runs - statuses["ACCEPTED"]
        print(f"{name}: {dict(statuses)}, speed {dict(speeds)}", flush=True)
    print(f"{wrong} of {args.runs * len(args.only)} turned away")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
