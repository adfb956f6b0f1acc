"""``python -m refold.judge.ask.table``: the tests as a table, from what they say of themselves."""

from __future__ import annotations

from refold.judge.tests.base import Test
from refold.judge.tests.registry import TESTS

BEGIN, END = "<!-- tests: python -m refold.judge.ask.table -->\n", "<!-- end -->\n"


def table() -> str:
    """Name, what is done, what that catches, calls of each model; in the order they run."""
    lines = ["| test | what is done | catches | calls |", "|---|---|---|---|"]
    lines += [_line(test) for test in TESTS]
    return "\n".join(lines) + "\n"


def _line(test: Test) -> str:
    calls = str(test.calls) if test.calls else "single"
    if test.apart:
        calls += ", in a worker of its own"
    return f"| {test.name} | {test.sentence} | {test.catches} | {calls} |"


if __name__ == "__main__":
    print(table(), end="")
