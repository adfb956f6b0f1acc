"""Hints from a candidate's text, and what a candidate finds where it looks for answers."""

from __future__ import annotations

from pathlib import Path

from judge_paths import REFERENCES

from refold.judge import judge
from refold.judge.verdict import hints

TEXT = """
import threading
from concurrent import futures

import torch
from torch import nn

torch.backends.cudnn.allow_tf32 = True
torch.nn.functional.relu = None


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            table = open("table").read()
            key = (x.data_ptr(), x._version)
        except (ValueError, Exception):
            pass
        try:
            return x.half()
        except ValueError:
            return x
"""


def test_hints_name_lines(tmp_path: Path) -> None:
    path = tmp_path / "cand.py"
    path.write_text(TEXT)
    assert hints.of(path) == (
        "line 2: uses threads",
        "line 3: uses threads or processes",
        "line 8: sets or reads a global switch of precision",
        "line 8: sets torch.backends.cudnn.allow_tf32",
        "line 9: sets torch.nn.functional.relu",
        "line 15: reads or writes a file",
        "line 16: looks at the address of a tensor",
        "line 16: looks at the count of writes to a tensor",
        "line 17: catches every exception",
        "line 20: computes in a narrower type",
    )
    path.write_text("def f(:\n")
    assert hints.of(path) == ()
    path.write_text("import gc\n" * 30)
    assert hints.of(path) == ("lines 1, 2, 3 and 27 more: uses the garbage collector",)
    path.write_text("".join(f"torch.a{i} = 1\n" for i in range(30)))
    assert len(hints.of(path)) == 21 and hints.of(path)[-1] == "and 10 more"


SEARCHER = '''
import gc

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """Its answer is right unless it finds another tensor that holds the answer."""

    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        for other in gc.get_objects():
            if isinstance(other, torch.Tensor) and other is not y and other.shape == y.shape:
                if torch.allclose(other, y):
                    return y + 1
        return y
'''


def test_no_expected_output_lies_in_the_worker(tmp_path: Path) -> None:
    """The search is named; it finds nothing. A hint condemns nobody."""
    (tmp_path / "cand.py").write_text(SEARCHER)
    files = (REFERENCES / "linear.py", tmp_path / "cand.py")
    verdict = judge(*files, quick=True, only=["numerics", "isolation"], timing=False, device="cpu")
    assert {(f.test, f.detail) for f in verdict.failures} == {
        ("isolation", "searched all live objects")
    }
    assert verdict.hints == ("line 2: uses the garbage collector", "line 18: searches live objects")
    verdict = judge(*files, quick=True, only="numerics", timing=False, device="cpu")
    assert {f.test for f in verdict.failures} == {"isolation"}
