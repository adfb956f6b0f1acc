"""The second process of a quick judgement takes its part of the tests, and may end at any time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from judge_paths import CANDIDATES, REFERENCES

# Both processes run tests that are none; what a report notes says where it was made. Such tests are
# of a process without threads, which pytest's is not.
PROGRAM = """
import os, select, sys, time
from types import SimpleNamespace
from refold.judge import second
from refold.judge.ask.request import How
from refold.judge.tests.base import Test
from refold.judge.verdict.naming import Plain
from refold.judge.verdict.verdict import TestReport

DIES, FIRST = sys.argv[1:] == ["dies"], os.getpid()
BEGUN, TELLS = os.pipe()
NAMES = ["contract", "modes", *(f"life {i}" for i in range(40)), "isolation", "apart"]
TESTS = [
    Test(n, "", "", lambda _: iter(()), lives=n.startswith("life"), apart=n == "apart")
    for n in NAMES
]
second.TESTS = tuple(TESTS)


def session(how):
    found = {"found": [], "errors": [], "notes": [], "assumptions": set(), "folder": ""}
    room = SimpleNamespace(notes=[])
    one = SimpleNamespace(**found, how=how, call_seconds=0.0, room=room, processes=1)
    one.plain = Plain(wrong=os.getpid() == FIRST)
    one.dismiss = lambda: None
    return one


def each(one, test, failures, reports):
    where = os.getpid() == FIRST
    if not where and DIES and test.name != NAMES[2]:
        os._exit(3)
    if where and test.name == "modes" and not DIES:
        select.select([BEGUN], [], [], 30)  # however busy the machine is
    time.sleep(0.005)
    if not where and test.name == NAMES[2]:
        os.write(TELLS, b"1")
        assert one.learn().wrong  # as the first process has it
    reports.append(TestReport(test.name, "", "passed", 0.0, 0, "first" if where else "second"))
    if not where:
        one.notes.append(test.name)


branch = SimpleNamespace(close=lambda: None)
how = How(quick=True)
second.forkserver.only = lambda server: None
there = second._forked(how, SimpleNamespace(branch=lambda: branch), session, each)
own, reports = session(how), []
there.prove(own, TESTS, [], reports, each)
there.close()
assert [r.name for r in reports] == NAMES, reports
by = {r.name: r.note for r in reports}
assert by["contract"] == by["modes"] == by["isolation"] == "first", by
assert own.processes == 1 if DIES else own.processes == 2
made = [r.name for r in reports if r.note == "second"]
assert set(own.notes) == set(made), own.notes
assert not made if DIES else "life 0" in made and "apart" in made, made
"""


@pytest.mark.parametrize("how", ["lives", "dies"])
def test_both_make_all_tests_in_order(how: str) -> None:
    """Each test is made once, what plain calls showed is told, and where the second process ends
    early the first makes its tests."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _told(reference: str, candidate: str) -> dict[str, object]:
    paths = [str(REFERENCES / f"{reference}.py"), str(CANDIDATES / f"{candidate}.py")]
    command = [sys.executable, "-m", "refold", "judge", *paths, "--quick", "--json", "--no-timing"]
    done = subprocess.run(command, capture_output=True, text=True)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_what_the_second_process_finds() -> None:
    """A candidate whose fold is stale, in plain calls and in lives: the verdict is of both."""
    told = _told("rowsum", "reject_18_stale_fold")
    failures = told["failures"]
    assert isinstance(failures, list)
    found = {(f["test"], f["status"]) for f in failures}
    assert found >= {(name, "STALE_WEIGHTS") for name in ("reload", "ways to write")}, found
    environment = told["environment"]
    assert isinstance(environment, dict) and environment["processes"] == 2


def test_wrong_everywhere_is_wrong_numerics(tmp_path: Path) -> None:
    """What is wrong in plain calls is wrong in lives, too, and no stale weight there: the second
    process has to know of the first one's calls."""
    told = _told("softmax", "reject_02_mean")
    assert told["status"] == "WRONG_NUMERICS", told["failures"]
    failures = told["failures"]
    assert isinstance(failures, list)
    assert {f["test"] for f in failures} >= {"numerics", "first calls"}
    assert {f["status"] for f in failures} == {"WRONG_NUMERICS"}
