"""Broken candidates, each found by the test that its docstring names; and their honest twins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from judge_paths import HERE, REFERENCES

from refold.judge import Limits, Status, judge
from refold.judge.tests.registry import names

CORPUS = HERE / "corpus"
HONEST = "_honest"
LIMITS = Limits(import_seconds=120, call_seconds=20)


@dataclass(frozen=True)
class Case:
    """What a file's docstring says of it."""

    path: Path
    reference: str
    test: str
    status: Status  # ACCEPTED of an honest one

    @staticmethod
    def of(path: Path) -> Case:
        found = dict(re.findall(r"^(reference|test|status): (.+)$", path.read_text(), re.MULTILINE))
        status = Status(found.get("status", "ACCEPTED"))
        return Case(path, found["reference"], found["test"], status)


CASES = [Case.of(path) for path in sorted(CORPUS.glob("*.py"))]


def test_the_corpus_is_whole() -> None:
    """Every broken file has an honest twin for the same test, and every test is named rightly."""
    by_name = {case.path.stem: case for case in CASES}
    broken = [case for case in CASES if not case.path.stem.endswith(HONEST)]
    assert len(broken) >= 60
    for case in broken:
        twin = by_name[case.path.stem + HONEST]
        assert (twin.test, twin.reference, twin.status) == (
            case.test,
            case.reference,
            Status.ACCEPTED,
        )
        assert case.test in names() and case.status is not Status.ACCEPTED, case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)
def test_corpus(case: Case) -> None:
    reference = REFERENCES / f"{case.reference}.py"
    verdict = judge(
        reference, case.path, quick=True, only=case.test, timing=False, device="cpu", limits=LIMITS
    )
    if case.status is Status.ACCEPTED:
        assert verdict.accepted, verdict.failures
        assert verdict.assumptions == ()
        return
    assert case.status in {f.status for f in verdict.failures if f.test == case.test}, (
        verdict.failures
    )
