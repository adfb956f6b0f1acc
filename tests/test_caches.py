"""Caches as arguments, which forward writes: the caller sees each write, the example none."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import refold

WIDTH = 16


class Growing:
    """Of keys, one after the other; held as an attribute, which is replaced."""

    def __init__(self) -> None:
        self.held: torch.Tensor | None = None
        self.count = 0

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        self.held = keys if self.held is None else torch.cat([self.held, keys], 1)
        self.count += keys.shape[1]
        return self.held


class Fixed:
    """Of a fixed size; keys are written into it."""

    def __init__(self) -> None:
        self.held, self.count = torch.zeros(2, 12, WIDTH), 0

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        self.held[:, self.count : self.count + keys.shape[1]].copy_(keys)
        self.count += keys.shape[1]
        return self.held[:, : self.count]


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: Growing | Fixed) -> torch.Tensor:
        keys = cache.update(self.key(x))
        return torch.softmax(self.query(x) @ keys.transpose(1, 2), -1) @ keys


@pytest.mark.parametrize("kind", [Growing, Fixed])
def test_a_cache_of_the_caller(kind: type[Growing] | type[Fixed]) -> None:
    torch.manual_seed(0)
    model, example = Attends().eval(), kind()
    with warnings.catch_warnings(record=True) as told, torch.no_grad():
        warnings.simplefilter("always")
        fast = refold.optimize(model, torch.randn(2, 4, WIDTH), example, baselines=())
        assert example.count == 0 and (example.held is None or not example.held.any())
        mine, theirs = kind(), kind()
        for length in (4, 1, 1, 3):  # of a prompt, and of what follows it
            x = torch.randn(2, length, WIDTH)
            torch.testing.assert_close(fast(x, mine), model(x, theirs))
            assert mine.count == theirs.count
            torch.testing.assert_close(mine.held, theirs.held)
    reasons = [str(w.message) for w in told if "refold" in str(w.message)]
    assert refold.status(fast).fast or len(reasons) == 1, reasons
