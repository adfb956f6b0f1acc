"""Honest twins of the corpus that other tests than theirs turned away, each by that test."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge_paths import HERE
from test_corpus import LIMITS, REFERENCES, Case

from refold.judge import judge
from refold.judge.tests.once.hostile import ZEROS
from refold.judge.tests.values.beyond import BEYOND

TURNED_AWAY = {
    # a table writes its rows in forward: two threads meet there, in the reference, too
    "norm_not_written_honest": ("threads", set()),
    # zeros, where the reference gives no gradient
    "target_learns_honest": ("threads", set()),
    # float64 does not live it, and eager computes in 16 bits
    "autocast_inside_honest": (
        "inside a network",
        {"inside a network: raises where the reference answers"},
    ),
    # a product under autocast, where the reference has a sum
    "many_tensors_honest": ("autocast", {"no autocast: it computes as if there were none"}),
    # zeros of a mask multiply the NaN
    "draws_exchanged_honest": ("NaN in a weight", {ZEROS}),
    # a product of float32, where eager's has accumulators of float64
    "product_by_logarithms_honest": ("far magnitudes", {BEYOND}),
    # the part that a hook would end is not called
    "hidden_of_another_batch_honest": ("after a refusal", set()),
    # indices out of range, of bytes: the judge failed
    "sum_in_16_bits_honest": ("refused widths", set()),
}


@pytest.mark.parametrize("name", TURNED_AWAY)
def test_honest_twins_pass_other_tests(name: str) -> None:
    case = Case.of(HERE / "corpus" / f"{name}.py")
    test, stamps = TURNED_AWAY[name]
    reference = REFERENCES / f"{case.reference}.py"
    common = {"timing": False, "device": "cpu", "limits": LIMITS}
    verdict = judge(reference, case.path, quick=True, only=test, **common)
    assert verdict.accepted, verdict.failures
    assert set(verdict.assumptions) == stamps


SIZES_DRAWN = """
import random
import torch

class {name}(torch.nn.Linear):
    def forward(self, x, y):
        return torch.relu(super().forward(x)) + y

def get_init_inputs():
    return [8, 6]

def get_inputs():
    rows = random.randint(4, 400)
    return [torch.randn(rows, 8), torch.randn(rows, 6)]
"""


@pytest.mark.parametrize("test", ["aliasing", "cache"])
def test_a_file_may_draw_sizes(test: str, tmp_path: Path) -> None:
    """No draw is written where another one lies, which has another size."""
    paths = []
    for name in ("Model", "ModelNew"):
        paths.append(tmp_path / f"{name}.py")
        paths[-1].write_text(SIZES_DRAWN.format(name=name))
    verdict = judge(*paths, timing=False, device="cpu", limits=LIMITS, quick=True, only=test)
    assert verdict.accepted, verdict.failures
