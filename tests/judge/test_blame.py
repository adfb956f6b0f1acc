"""What is changed outside of a worker while it is judged: by the candidate, or by somebody else."""

from __future__ import annotations

import os

import pytest
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import judge
from refold.judge.verdict import blame

PROCESSORS = os.sched_getaffinity(0)


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="one processor: there are no others to run on")
def test_who_judges_may_give_the_judge_other_processors() -> None:
    given = REFERENCES / "linear.py", CANDIDATES / "accept_01_copy.py"
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        if text == "isolation":
            os.sched_setaffinity(0, {min(PROCESSORS)})

    options = {"quick": True, "only": "isolation", "timing": False, "device": "cpu"}
    try:
        verdict = judge(*given, progress=progress, **options)
        assert os.sched_getaffinity(0) == {min(PROCESSORS)}, said
    finally:
        os.sched_setaffinity(0, PROCESSORS)
    assert verdict.accepted, verdict.failures
    assert any(note.startswith(blame.MOVED) for note in verdict.notes), verdict.notes
