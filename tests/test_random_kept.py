"""What refold calls while it makes something leaves PyTorch's random numbers as they were."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from refold import varying
from refold.capture import Example
from refold.capture.generators import torchs_kept


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[int, torch.Tensor]:
    """The states of two GPUs, which `torch.manual_seed` begins anew."""
    states = {0: torch.tensor([5]), 1: torch.tensor([7])}
    cuda: Any = torch.cuda

    def set_state(state: torch.Tensor, device: int) -> None:
        states[device] = state

    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "get_rng_state", lambda device: states[device].clone())
    monkeypatch.setattr(cuda, "set_rng_state", set_state)
    return states


def test_of_all_gpus(cards: dict[int, torch.Tensor]) -> None:
    before = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torchs_kept():
            torch.rand(3)
            cards[0], cards[1] = torch.tensor([0]), torch.tensor([0])
    assert (int(cards[0]), int(cards[1])) == (5, 7)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_grown_is_compared_so(
    cards: dict[int, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program for other sizes is called beside forward, both under one seed."""
    seeded = torch.manual_seed

    def seed(number: int) -> Any:
        cards[0], cards[1] = torch.tensor([0]), torch.tensor([0])
        return seeded(number)

    class Attempt:
        @staticmethod
        def attempt(module: torch.nn.Module, caches: Any, x: torch.Tensor) -> torch.Tensor:
            return module.fc(x)

    class Drawing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

    module = Drawing()
    monkeypatch.setattr(torch, "manual_seed", seed)
    made: Any = Attempt
    assert varying.is_right(made, module, Example((torch.randn(2, 4),)))
    assert (int(cards[0]), int(cards[1])) == (5, 7)
