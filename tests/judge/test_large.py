"""What the judge does less often, or of smaller parts, where outputs are large."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from refold.contract import load
from refold.judge.ask.request import How, Request
from refold.judge.clock.alternate import QUICK
from refold.judge.clock.decide import decide
from refold.judge.clock.measure import _too_long
from refold.judge.rule.beside import Beside, some
from refold.judge.tests.once.shapes import _most
from refold.judge.verdict import begin
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Speed


@pytest.mark.parametrize("shape", [(32, 8, 60, 61), (3, 90, 33, 34), (400000,), (2, 300000)])
def test_some_rows(shape: tuple[int, ...]) -> None:
    """Few, whole, the same ones of whatever has the shape, and of their own again."""
    value = torch.rand(shape)
    few = some(value)
    assert few.numel() <= 1 << 16 or few.numel() == shape[-1]
    assert len(shape) == 1 or few.shape[-1] == shape[-1]
    assert some(few).shape == few.shape
    assert torch.equal(some(Beside(value.double(), value)).float(), few)


def _cost(moved: int) -> float:
    one: Any = SimpleNamespace(
        moved=moved, call_seconds=1e-4, device=torch.device("cpu"), oracle=SimpleNamespace(bytes=0)
    )
    return Session.cost(one, 100, 0)


def test_the_budget_knows_what_large_outputs_cost() -> None:
    """A GPU's call takes microseconds, and its output milliseconds; small ones cost what they
    did."""
    assert _cost(24 << 20) > 10 * _cost(1 << 20) == 10 * _cost(4 << 20)


WAITS = """
import time

import torch
from torch import nn


class Model(nn.Module):
    calls = 0

    def forward(self, x):
        Model.calls += 1
        time.sleep({seconds} if Model.calls <= {calls} else 0)
        return x + 1


def get_inputs():
    return [torch.zeros(3)]
"""


@pytest.mark.parametrize(
    "calls, seconds, large", [(1, 0.3, False), (3, 0.26, False), (99, 0.3, True)]
)
def test_a_call_that_waited_for_a_processor_is_no_slow_model(
    calls: int, seconds: float, large: bool, tmp_path: Path
) -> None:
    """Others may hold the machine while the reference is tried: the budget would be spent."""
    path = tmp_path / "reference.py"
    path.write_text(WAITS.format(calls=calls, seconds=seconds))
    request = Request(path, path, device="cpu")
    one = begin.session(load(path, ()), request, How(quick=True, timing=False))
    assert (one.call_seconds > 0.2) is large
    assert not one.frugal


def _end(sample: int) -> int:
    outputs = [torch.empty(3, sample, device="meta")]
    truth = SimpleNamespace(eager=SimpleNamespace(outputs=outputs))
    one: Any = SimpleNamespace(truth=lambda _: truth)
    return _most(one, [torch.zeros(3, 4)])


def test_secret_sizes_of_large_samples() -> None:
    """All up to 199 of small samples, some of large ones, and always more than are drawn."""
    assert _end(1000) == 200 and 9 < _end(1 << 18) < 200 and _end(1 << 24) == 9


def test_sealed_calls_that_take_too_long() -> None:
    """Nine rounds have to fit."""

    def side(seconds: float) -> Any:
        def lap(_: Any) -> None:
            time.sleep(seconds)
            one.spans.append([seconds])

        one = SimpleNamespace(lap=lap, spans=[])
        return one

    slow, quick = side(0.3), side(0.001)
    assert _too_long(slow, [torch.zeros(3)], QUICK) and not _too_long(quick, [], QUICK)
    assert not slow.spans and not quick.spans


def test_no_sealed_call_leaves_the_warm_ratio() -> None:
    """It is printed, and says nothing of speed."""
    made = decide([], (2.0, 1.9, 2.1), "", "", 0)
    assert made.headline == "warm" and made.ratio == 2.0 and made.speed is Speed.INCONCLUSIVE
    assert math.isnan(made.sealed[0])
