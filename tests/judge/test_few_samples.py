"""How many samples most tests are called on, and what is contiguous."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from refold.contract import load
from refold.judge.ask.request import asked
from refold.judge.tests.forms import batches
from refold.judge.tests.once import shapes
from refold.judge.verdict import begin, facts


def session_of(folder: Path, text: str) -> begin.Session:
    """A judgement of the reference `text`, before any candidate is called."""
    (folder / "ref.py").write_text(text)
    reference = load(folder / "ref.py")
    given = asked(reference.path, reference.path, device="cpu", quick=True)
    return begin.session(reference, *given)


@pytest.mark.parametrize(("products", "samples"), [(1 << 28, 64), (1 << 16, 32), (1, 16)])
def test_of_large_weights_few_samples_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, products: int, samples: int
) -> None:
    """Never fewer than sixteen; and never more than make outputs small."""
    monkeypatch.setattr("refold.judge.verdict.truths._PRODUCTS", products)
    monkeypatch.setattr("refold.judge.verdict.truths._PROBE", 64 * 64)
    text = (
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.rand(64, 32))\n"
        "    def forward(self, x):\n        return x @ self.weight.t()\n"
        "def get_inputs():\n    return [torch.randn(256, 32)]\n"
    )
    assert session_of(tmp_path, text).samples == (256, samples)


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((4, 3), (3, 1), True),
        ((4, 3), (1, 4), False),
        ((0, 3), (7, 9), True),  # of nothing strides mean nothing
        ((1, 3), (9, 1), True),
        ((4, 3), (4, 1), False),
        ((), (), True),
    ],
)
def test_what_is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], dense: bool) -> None:
    assert facts.dense(shape, strides) is dense


@pytest.mark.parametrize(
    ("given", "other", "seldom"),
    [
        ([(6, 8)], [(0, 8)], True),
        ([(6, 8)], [(1, 8)], False),
        ([(6, 8), (6, 8)], [(6, 1), (6, 8)], True),
        ([(6, 8), (6, 8)], [(6, 1), (6, 1)], False),
        ([(6, 8), (6, 8)], [(1, 8), (1, 8)], False),
        ([(6, 8), (8, 4)], [(6, 1), (8, 4)], False),
    ],
)
def test_which_shapes_may_be_refused(
    given: list[tuple[int, ...]], other: list[tuple[int, ...]], seldom: bool
) -> None:
    """No samples, or one row of one input alone for all of another: a kernel may refuse these."""
    before, behind = ([torch.zeros(size) for size in sizes] for sizes in (given, other))
    assert shapes.seldom(before, behind) is seldom


@pytest.mark.parametrize(("grows", "whole"), [(0.0, True), (1.0, False)])
@pytest.mark.parametrize("alone", [False, True])
def test_a_loop_over_samples_is_asked_of_fewer_sizes(
    grows: float, whole: bool, alone: bool
) -> None:
    """A secret choice, where calls take as much longer as their samples are more."""
    usual, batch = 1e-3, 8

    def takes(given: list[torch.Tensor]) -> float:
        return usual * (1 + grows * (len(given[0]) / batch - 1))

    def sizes(secret: int) -> list[int]:
        session: Any = SimpleNamespace(
            secret=secret,
            call_seconds=usual,
            alone=alone,
            device=torch.device("cpu"),
            inputs=lambda: [torch.zeros(batch, 4)],
            oracle=SimpleNamespace(call_seconds=takes),
            oracle_enter=lambda state: None,
            base_state="",
        )
        return batches._sizes(session, 32.0, 0)

    found, other = sizes(1), sizes(2)
    assert set(found) != set(other)
    if whole or alone:
        assert set(range(1, 130)) <= set(found)
    else:
        took = sum(usual * n / batch for n in found)
        assert len(found) >= 8 and took <= 1.0 < usual * sum(range(1, 2051, 20)) / batch
