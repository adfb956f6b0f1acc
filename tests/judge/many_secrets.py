"""How often does a test of the judge fail? Each judgement draws a secret, which may be unlucky.

    python tests/judge/many_secrets.py [--count 60] [--seconds 30] [--few 5] [FILE, FILE::TEST ...]
    python tests/judge/many_secrets.py --table      # prints what was counted so far

Each test runs again and again, by other secrets, until it has run so many times or its seconds are
over. What is judged by nothing secret runs a few times. Counts are kept under out/many_secrets; a
later start goes on from there, and passes by what has run often enough. `refold judge --secret`
repeats what the table names. Cases are those of `make test`, or all with `--all`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from refold.judge import run
from refold.judge.verdict.session import Session

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "out" / "many_secrets"
FIELDS = ("test", "runs", "failures", "secret", "seconds", "secrets", "words")
# they read the secret whatever is judged: to tell it, and to choose between two ways to build
_READ_ALWAYS = ("conclude.py", "life.py")


@dataclass
class Count:
    """What is known of one test."""

    runs: int = 0
    failures: int = 0
    secret: bool = False  # whether a test of the judge has asked for the secret
    seconds: float = 0.0
    secrets: list[int] = field(default_factory=list)  # of failures
    words: str = ""  # of the last failure


@dataclass
class Drawn:
    """Secrets that were drawn, and whether they were asked for."""

    secrets: list[int] = field(default_factory=list)
    asked: bool = False

    def watch(self) -> None:
        """From now on."""
        randbits, secret = run.secrets.randbits, Session.secret.fget
        assert secret is not None

        def drawn(bits: int) -> int:
            self.secrets.append(randbits(bits))
            return self.secrets[-1]

        def asked(session: Session) -> int:
            caller = Path(sys._getframe(1).f_code.co_filename).name
            self.asked |= caller not in _READ_ALWAYS
            return int(secret(session))

        run.secrets.randbits = drawn
        Session.secret = property(asked)  # type: ignore[assignment, method-assign]


class Again:
    """A plugin: each item many times."""

    def __init__(self, args: argparse.Namespace, known: dict[str, Count], path: Path) -> None:
        self.args, self.known, self.path = args, known, path
        self.drawn = Drawn()
        self.drawn.watch()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of pytest's own loop."""
        for item in session.items:
            before = self.known.get(item.nodeid, Count())
            found = self._counted(item, before)
            if found.runs:
                self._keep(item.nodeid, found)
        return True

    def _counted(self, item: pytest.Item, before: Count) -> Count:
        found, began = Count(secret=before.secret), time.perf_counter()
        while True:
            runs = before.runs + found.runs
            failed = before.failures + found.failures
            wanted = self.args.count if found.secret or failed else self.args.few
            found.seconds = time.perf_counter() - began
            if runs >= wanted or found.seconds > self.args.seconds:
                return found
            self.drawn.secrets.clear()
            self.drawn.asked = False
            reports = runtestprotocol(item, nextitem=None, log=False)
            if any(r.skipped for r in reports):
                return Count()
            found.runs += 1
            found.secret |= self.drawn.asked
            for report in reports:
                if report.failed:
                    found.failures += 1
                    found.secrets += self.drawn.secrets
                    found.words = " ".join(report.longreprtext.split()[-60:])

    def _keep(self, name: str, found: Count) -> None:
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(FIELDS)
            secrets = " ".join(map(str, found.secrets))
            seconds = round(found.seconds, 1)
            row = [found.runs, found.failures, int(found.secret), seconds, secrets, found.words]
            writer.writerow([name, *row])
        mark = "FAILED" if found.failures else "passed"
        each = found.seconds / found.runs
        print(f"{mark} {found.failures} of {found.runs} ({each:.2f} s each) {name}", flush=True)


def known() -> dict[str, Count]:
    """What all starts so far have counted."""
    counts: dict[str, Count] = defaultdict(Count)
    for path in sorted(OUT.glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                one = counts[row["test"]]
                one.runs += int(row["runs"])
                one.failures += int(row["failures"])
                one.secret |= row["secret"] == "1"
                one.seconds += float(row["seconds"])
                one.secrets += map(int, row["secrets"].split())
                one.words = row["words"] or one.words
    return dict(counts)


def table(counts: dict[str, Count]) -> str:
    """What fails, how often, and by which secrets."""
    runs, seconds = (sum(getattr(c, n) for c in counts.values()) for n in ("runs", "seconds"))
    asked = sum(c.secret for c in counts.values())
    lines = [
        f"{len(counts)} tests, {asked} of them by something secret, {runs} runs, {seconds:.0f} s"
    ]
    for name, one in sorted(counts.items(), key=lambda pair: -pair[1].failures / pair[1].runs):
        if one.failures:
            lines.append(f"{one.failures} of {one.runs} failed: {name}")
            lines.append(f"    secrets {one.secrets[:6]}; {one.words[-400:]}")
    return "\n".join(lines)


def main() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60, help="runs of what a secret decides")
    parser.add_argument("--few", type=int, default=5, help="runs of what it does not")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each test")
    parser.add_argument("--log", default="counts", help="name of the file of counts")
    parser.add_argument("--table", action="store_true")
    args, rest = parser.parse_known_args()
    if args.table:
        return print(table(known()))
    OUT.mkdir(parents=True, exist_ok=True)
    again = Again(args, known(), OUT / f"{args.log}.csv")
    given = rest if any(not a.startswith("-") for a in rest) else [*rest, str(HERE)]
    pytest.main(["-q", "-p", "no:cacheprovider", *given], plugins=[again])
    print(table(known()))
    return None


if __name__ == "__main__":
    sys.exit(main())
