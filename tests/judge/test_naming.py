"""What is found wrong has the name of what is wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judge_paths import REFERENCES

from refold.judge import Limits, Status, judge
from refold.judge.tests.lives.common import begin, call
from refold.judge.verdict import naming
from refold.judge.verdict.life import Life
from refold.judge.worker.steps import FACT, GRADS, OUTPUT

S = Status
LIMITS = Limits(import_seconds=120, call_seconds=20)
WRITE = {"do": "write", "names": ["w"], "how": "in place", "factor": 2.0}
THREADS = {"do": "threads", "inputs": ["x0", "x1"], "count": 2, "label": "y"}
OTHER = {"do": "build", "state": "", "init": [2, 3]}
SLOPES = {"do": "slopes", "of": "y0", "label": "g0"}
LATER = [
    call("y0", see=False),
    SLOPES,
    call("y1", see=False),
    {**SLOPES, "of": "y1", "label": "g1"},
]


def session(plainly: bool = False, never: bool = False, both: bool = False) -> Any:
    return SimpleNamespace(plain=naming.Plain(plainly, never, both))


@pytest.mark.parametrize(
    ("own", "steps", "label", "kind", "structural", "expected"),
    [
        # names, shapes and types of outputs are the contract's, whatever the life is about
        (S.MUTATES, [call("y"), call("z")], "z", OUTPUT, True, S.WRONG_CONTRACT),
        (S.WRONG_MODE, [call("y")], "gradients", GRADS, True, S.WRONG_MODE),
        # a plain call, before which nothing has happened
        (S.CRASHED, [call("first"), call("then")], "first", OUTPUT, False, S.WRONG_NUMERICS),
        (S.CRASHED, [call("first"), call("then")], "then", OUTPUT, False, S.CRASHED),
        (S.WRONG_CONTRACT, [call("y", how="keywords")], "y", OUTPUT, False, S.WRONG_CONTRACT),
        (S.WRONG_CONTRACT, [OTHER, call("y")], "y", OUTPUT, False, S.WRONG_CONTRACT),
        # gradients that are wrong at once were not written over
        (S.MUTATES, [call("y0", see=False), SLOPES], "g0", OUTPUT, False, S.WRONG_MODE),
        (S.MUTATES, [call("y0", see=False), SLOPES, call("y1")], "later", OUTPUT, False, S.MUTATES),
        (S.MUTATES, [call("y0", see=False), *LATER], "g1", OUTPUT, False, S.WRONG_MODE),
        # no weight was written
        (S.STALE_WEIGHTS, [THREADS, WRITE], "y, thread 0, call 1", OUTPUT, False, S.WRONG_NUMERICS),
        (S.STALE_WEIGHTS, [call("y"), WRITE, call("z")], "z", OUTPUT, False, S.STALE_WEIGHTS),
        (
            S.STALE_WEIGHTS,
            [call("y"), WRITE, call("y, on")],
            "y, on",
            OUTPUT,
            False,
            S.STALE_WEIGHTS,
        ),
        (S.WRONG_CONTRACT, [call("y")], "y", FACT, False, S.WRONG_CONTRACT),
    ],
)
def test_status_of_a_life(
    own: Status, steps: list[Any], label: str, kind: str, structural: bool, expected: Status
) -> None:
    life = Life("", (*begin(), *steps), {}, status=own)
    assert naming.status(session(), life, label, kind, structural) is expected


def test_where_every_plain_call_is_wrong() -> None:
    """Then values that are wrong elsewhere say nothing of caches, weights and modes."""
    for status in (S.CHEATS, S.MUTATES, S.NONDETERMINISTIC):
        assert naming.value(session(plainly=True), status) is S.WRONG_NUMERICS
    assert naming.value(session(plainly=True), S.STALE_WEIGHTS) is S.STALE_WEIGHTS
    assert naming.value(session(True, True), S.STALE_WEIGHTS) is S.WRONG_NUMERICS
    assert naming.value(session(True, True), S.WRONG_MODE) is S.WRONG_MODE
    assert naming.value(session(True, True, True), S.WRONG_MODE) is S.WRONG_NUMERICS


def test_where_plain_calls_leave_other_buffers() -> None:
    """What later calls make of these is no stale weight, and nothing that a refused call left."""
    other = session()
    other.plain.moves_wrongly = True
    for status in (S.CRASHED, S.STALE_WEIGHTS, S.MUTATES, S.WRONG_CONTRACT, S.WRONG_MODE):
        assert naming.value(other, status) is S.WRONG_MODE
    assert naming.value(other, S.WRONG_NUMERICS) is S.WRONG_NUMERICS


WRONG = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return {answer}
"""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("torch.nn.functional.silu(self.linear(x))", S.WRONG_NUMERICS),
        ("torch.nn.functional.gelu(self.linear(x)).double()", S.WRONG_CONTRACT),
        ("[torch.nn.functional.gelu(self.linear(x))]", S.WRONG_CONTRACT),
    ],
)
def test_what_the_verdict_calls_another_function(
    answer: str, expected: Status, tmp_path: Path
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(WRONG.format(answer=answer))
    only = ["numerics", "modes", "after a refusal", "keywords", "two instances", "another process"]
    verdict = judge(
        REFERENCES / "linear.py",
        candidate,
        quick=True,
        only=only,
        timing=False,
        device="cpu",
        limits=LIMITS,
    )
    assert verdict.status is expected, verdict.failures


def test_what_is_wrong_on_these_inputs_at_once_is_no_crash(tmp_path: Path) -> None:
    """A refusal between made nothing wrong that a new module has wrong, too."""
    reference = tmp_path / "ref.py"
    text = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
    text += (
        "    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 4)\n\n"
    )
    text += "    def forward(self, x):\n        return self.a(x)\n"
    inputs = "\n\ndef get_inputs():\n    return [torch.randn(3, 6)]\n"
    reference.write_text(text + inputs)
    candidate = tmp_path / "cand.py"
    text = text.replace("Model(", "ModelNew(").replace("return self.a(x)", "return self.a(x).abs()")
    candidate.write_text(text)
    test = "after a refusal"
    verdict = judge(reference, candidate, quick=True, only=test, timing=False, limits=LIMITS)
    named = {f.status for f in verdict.failures}
    assert S.WRONG_NUMERICS in named <= {S.WRONG_NUMERICS, S.WRONG_MODE}, verdict.failures


def test_what_is_wrong_on_other_values_is_no_cheat(tmp_path: Path) -> None:
    """Nothing is kept from another call where a new worker is wrong on these values, too."""
    text = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
    text += (
        "    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 4)\n\n"
    )
    text += "    def forward(self, x, mask):\n"
    text += "        seen = torch.arange(4) <= torch.arange(len(x))[:, None]\n"
    text += (
        "        s = self.a(x).masked_fill(~(mask & seen), -1e9)\n        return s.softmax(-1)\n"
    )
    inputs = "\n\ndef get_inputs():\n    mask = torch.zeros(3, 4, dtype=torch.bool)\n"
    inputs += "    mask[:, 0] = True\n    return [torch.randn(3, 6), mask]\n"
    (tmp_path / "ref.py").write_text(text + inputs)
    text = text.replace("Model(", "ModelNew(").replace("-1e9", 'float("-inf")')
    (tmp_path / "cand.py").write_text(text)
    verdict = judge(
        tmp_path / "ref.py", tmp_path / "cand.py", quick=True, only="cache", timing=False
    )
    assert {f.status for f in verdict.failures} == {S.WRONG_NUMERICS}, verdict.failures
