"""A short soak with fixed seeds: random programs of the judge's steps on refold's own output.

`make soak` draws for an hour. What it found stays in `test_soak_findings.py`.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, seed, settings

from refold import pipeline
from soak import a_round, told
from soak_models import Named
from soak_programs import TAME, programs
from soak_subjects import Subject

CALL = {"do": "call", "inputs": "x0", "label": "y"}
WRITE = {"do": "write", "names": ["m0.weight"], "how": "in place", "factor": 1.25}
INPUTS = {f"x{i}": {"batch": 6, "how": "plain"} for i in range(4)}
LINEAR = """
import torch
import torch.nn as nn

n = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.m0 = nn.Linear(12, 7)

    def forward(self, x):
        return self.m0(x).sum(-1)


def get_inputs():
    return [torch.randn(n, 12)]
"""


@pytest.mark.parametrize(
    ("kind", "models"), [("random", 6), ("nested", 5), ("zoo", 3), ("images", 5)]
)
def test_random_programs(kind, models):
    finding = a_round(1, [kind], "torch", models, how=TAME)
    assert finding is None, told(finding, 1)


def test_random_programs_on_kernels():
    one = Subject(Named("BatchNormTrain"))

    @seed(2)
    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(programs(one.facts, TAME))
    def check(program):
        one.check(program)

    check()


def _rounded(module):
    class Rounded(type(module)):
        def forward(self, x):
            return super().forward(x) * (1 + 1e-5)

    return Rounded


def _stale(module):
    class Stale(type(module)):
        fold = None

        def forward(self, x):
            if self.fold is None:
                self.fold = self.m0.weight.detach().sum(0)
            return x @ self.fold + self.m0.bias.sum()

    return Stale


def _raises(module):
    class Raises(type(module)):
        def forward(self, x):
            if self.m0.weight.grad is not None:
                raise RuntimeError("not this time")
            return super().forward(x)

    return Raises


TRAINED = (
    {"do": "call", "inputs": "x0", "label": "first", "grad": True},
    {"do": "backward", "of": "first"},
)


@pytest.mark.parametrize(
    ("wrong", "steps"),
    [(_rounded, ()), (_stale, ({**CALL, "label": "first"}, WRITE)), (_raises, TRAINED)],
)
def test_the_soak_sees(wrong, steps):
    one = Subject(Named(LINEAR, "twin", "torch"))
    program = {"inputs": INPUTS, "steps": [{"do": "build", "state": ""}, *steps, CALL]}
    one.check(program)
    one.fast = pipeline.adopt(wrong(one.module), copy.deepcopy(one.module))
    with pytest.raises(AssertionError):
        one.check(program)
