"""Of a whole verdict two workers make thousands of calls at once: one for what is rarely wrong, one
for what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from judge_paths import HERE, REFERENCES

from refold.judge import Limits, conclude, judge
from refold.judge.tests.process import many
from refold.judge.tests.registry import TESTS

CASES = {
    "wrong_now_and_then": "volume",
    "keeps_everything": "leaks",
    "keeps_a_little": "leaks",
    "files_left_open": "leaks",
    "wrong_now_and_then_honest": "",
    "keeps_everything_honest": "",
}


@pytest.mark.parametrize("name", CASES)
def test_both_find_what_they_find_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(t for t in TESTS if t.name in ("contract", "volume", "leaks"))
    monkeypatch.setattr(conclude, "TESTS", few)
    another, started = many._another, list[Any]()

    def counted(*given: Any) -> Any:
        started.append(given)
        return another(*given)

    monkeypatch.setattr(many, "_another", counted)
    path = HERE / "corpus" / f"{name}.py"
    (line,) = [x for x in path.read_text().splitlines() if x.startswith("reference: ")]
    reference = REFERENCES / f"{line.removeprefix('reference: ')}.py"
    limits = Limits(import_seconds=120, call_seconds=20)
    verdict = judge(reference, path, quick=True, timing=False, device="cpu", limits=limits)
    assert started, "one worker made all calls"
    assert {f.test for f in verdict.failures} == ({CASES[name]} if CASES[name] else set())
