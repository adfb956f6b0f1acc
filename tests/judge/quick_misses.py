"""What the quick verdict misses and the full one finds, over every broken candidate here.

    python tests/judge/quick_misses.py [--shard 0/4]    # judges; goes on where it was broken off
    python tests/judge/quick_misses.py --table          # prints the table of docs/judge.md
    python tests/judge/quick_misses.py --write          # writes it there

Each candidate is judged with all tests of the quick verdict, as `refold judge --quick` does. One
that is accepted is judged with the full verdict, too. Rows are kept under out/quick_misses.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import test_candidates
import test_corpus
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import Limits, Status, judge

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "quick_misses"
DOCS = ROOT / "docs" / "judge.md"
BEGIN, END = "<!-- quick misses: python tests/judge/quick_misses.py -->\n", "<!-- end -->\n"
LIMITS = test_candidates.LIMITS


@dataclass(frozen=True)
class Broken:
    path: Path
    reference: str
    test: str
    timed: bool = False
    limits: Limits = LIMITS

    @property
    def name(self) -> str:
        return self.path.stem


def broken() -> list[Broken]:
    """Every broken candidate that needs no GPU, once."""
    found: dict[str, Broken] = {}
    for case in test_candidates.TABLE:
        if case.test and not case.gpu and not case.sanitized:
            limits = test_candidates.SHORT if case.short else LIMITS
            limits = test_candidates.SMALL if case.small else limits
            path = CANDIDATES / f"{case.file}.py"
            timed = case.timed or (path.stem in found and found[path.stem].timed)
            found[path.stem] = Broken(path, case.reference, case.test, timed, limits)
    for one in test_corpus.CASES:
        if one.status is not Status.ACCEPTED:
            found[one.path.stem] = Broken(one.path, one.reference, one.test)
    return [found[name] for name in sorted(found)]


def row_of(case: Broken) -> dict[str, Any]:
    given = REFERENCES / f"{case.reference}.py", case.path
    common = {"timing": case.timed, "device": "cpu", "limits": case.limits}
    quick = judge(*given, quick=True, **common)
    row: dict[str, Any] = {"name": case.name, "test": case.test}
    row |= _told("quick", quick)
    row["left out"] = "; ".join(t.name for t in quick.tests if t.note.startswith("left out"))
    if quick.accepted:
        row |= _told("full", judge(*given, full=True, **common))
    return row


def _told(kind: str, verdict: Any) -> dict[str, Any]:
    tests = "; ".join(dict.fromkeys(f.test for f in verdict.failures))
    seconds = round(verdict.seconds, 1)
    return {kind: verdict.status.value, f"{kind} by": tests, f"{kind} seconds": seconds}


def rows() -> dict[str, dict[str, str]]:
    found = {}
    for path in sorted(OUT.glob("*.csv")):
        with path.open(newline="") as file:
            found |= {row["name"]: row for row in csv.DictReader(file)}
    return found


def table(found: dict[str, dict[str, str]]) -> str:
    every = broken()
    missed = [found[c.name] for c in every if c.name in found and found[c.name].get("full")]
    other = [
        r
        for c in every
        if (r := found.get(c.name)) and not r.get("full")
        if c.test not in r["quick by"].split("; ")
    ]
    judged = sum(c.name in found for c in every)
    lines = [
        f"Of {len(every)} broken candidates {judged} were judged; the quick verdict rejects"
        f" {judged - len(missed)}, {judged - len(missed) - len(other)} of them by the test that"
        " they are made for.",
        "",
    ]
    if missed:
        lines += ["| missed by quick | its test | the full verdict | left out by quick |"]
        lines += ["|---|---|---|---|"]
        for r in missed:
            full = f"{r['full']}: {r['full by']}" if r["full by"] else f"{r['full']}"
            lines.append(f"| {r['name']} | {r['test']} | {full} | {r['left out'] or 'nothing'} |")
    else:
        lines.append("It misses none.")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th, from I on")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if not (args.table or args.write):
        index, of = map(int, args.shard.split("/"))
        OUT.mkdir(parents=True, exist_ok=True)
        path = OUT / f"{index}_of_{of}.csv"
        known = rows()
        for case in broken()[index::of]:
            if case.name in known:
                continue
            row = row_of(case)
            new = not path.exists()
            names = ["name", "test", "left out"]
            names += [f"{k}{w}" for k in ("quick", "full") for w in ("", " by", " seconds")]
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, names, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(row, flush=True)
    told = table(rows())
    print(told)
    if args.write:
        text = DOCS.read_text()
        before, rest = text.split(BEGIN)
        DOCS.write_text(before + BEGIN + told + END + rest.split(END, 1)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
