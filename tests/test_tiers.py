"""The table that decides what `make test` leaves out."""

from __future__ import annotations

import re

import pytest

import faults
import tiers
from tiers import Row


@pytest.fixture
def table(monkeypatch):
    rows = {"a.py::f": Row("why", ("*", "!x-*", "x-1")), "a.py::g": Row("why")}
    monkeypatch.setattr(tiers, "TABLE", rows)


def test_the_last_pattern_that_fits_decides(table):
    kept = [n for n in ("y", "x-1", "x-2", "[0]") if tiers.is_kept(f"a.py::f[{n}]")]
    assert kept == ["y", "x-1", "[0]"]
    assert not tiers.is_kept("a.py::g") and tiers.is_kept("a.py::h") and tiers.is_kept("b.py::f[1]")


def test_a_row_that_says_nothing_is_a_mistake(table):
    nodes = ["a.py::f[x-1]", "a.py::f[x-2]", "b.py::f"]
    assert tiers.mistakes(nodes) == ["a.py::g: there is no such test"]
    assert tiers.mistakes(["a.py::f[y]", "a.py::g"]) == [
        "a.py::f: no case has an id like '!x-*'",
        "a.py::f: no case has an id like 'x-1'",
    ]
    assert tiers.mistakes(["b.py::f"]) == []


def test_every_row_says_why():
    assert all(len(row.why.split()) > 2 for row in tiers.TABLE.values())


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda f: f.name)
def test_a_seeded_fault_changes_a_text_that_is_there(fault):
    """`make faults` takes long, so that it is seen here where a row of it has grown old."""
    text = (faults.ROOT / "src" / "refold" / fault.file).read_text()
    assert fault.old in text and fault.new != fault.old
    assert (faults.ROOT / fault.tests[0]).exists()


def test_there_are_twenty_faults_everywhere():
    folders = {f.file.split("/")[0] for f in faults.FAULTS}
    assert len(faults.FAULTS) >= 20
    assert folders >= {"rules", "plan", "emit", "runtime", "kernels", "judge"}


def test_what_finds_each_fault_first_is_in_the_shorter_command():
    """docs/testing.md has what `make faults` found; a row that moves one of these tests away is
    seen here."""
    table = faults.PAGE.read_text().partition(faults.BEGIN)[2].partition(faults.END)[0]
    found = re.findall(r"\| `(\S+?\.py::[^`]*)` \|", table)
    assert len(found) == len(faults.FAULTS)
    assert [test for test in found if not tiers.is_kept(f"tests/{test}")] == []
