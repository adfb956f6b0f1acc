"""Tables that a module holds in a list or a dict: made at once, or kept at a first call."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import refold


class Kept(nn.Module):
    """A bias for each device, kept in eval mode until the module is trained, as LeViT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.table = nn.Parameter(torch.randn(4, 9))
        self.register_buffer("places", torch.randint(0, 9, (5, 6)), persistent=False)
        self.kept: dict[Any, torch.Tensor] = {}

    def train(self, mode: bool = True) -> Kept:
        super().train(mode)
        if mode and self.kept:
            self.kept = {}
        return self

    def bias(self, device: torch.device) -> torch.Tensor:
        if self.training:
            return self.table[:, self.places]
        if device not in self.kept:
            self.kept[device] = self.table[:, self.places]
        return self.kept[device]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x) + self.bias(x.device)).softmax(-1)


class Sized(nn.Module):
    """A table for each size of images, in a dict of a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.kept: dict[str, dict[Any, torch.Tensor]] = {"tables": {}}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[1:3]
        if (height, width) not in self.kept["tables"]:
            made = torch.arange(height * width, dtype=x.dtype).view(height, width, 1)
            self.kept["tables"][height, width] = made.sin()
        return self.linear(x + self.kept["tables"][height, width]).relu()


class Levels(nn.Module):
    """A list of plain tensors, as anchors are held."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.levels = [torch.rand(3, 4) + 1, torch.rand(4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        for level in self.levels:
            x = torch.tanh(x * level)
        return x


def same(fast: nn.Module, eager: nn.Module, *shape: int, fast_now: bool = True) -> None:
    for again in range(2):
        x = torch.randn(*shape)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), eager(x), rtol=1e-4, atol=1e-5)
        if again and fast_now:
            assert refold.status(fast).fast, refold.status(fast).reason


pytestmark = pytest.mark.filterwarnings("ignore:refold. the original")


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_kept_at_a_first_call(warm: bool) -> None:
    torch.manual_seed(0)
    model = Kept().eval()
    eager = copy.deepcopy(model)
    if warm:  # with a history, which is there still where gradients are wanted
        for each in (model, eager):
            each(torch.zeros(2, 4, 5, 6))
    fast = refold.optimize(model, torch.randn(2, 4, 5, 6), measure=False)
    assert len(model.kept) == warm
    same(fast, eager, 2, 4, 5, 6)
    same(fast, eager, 3, 4, 5, 6)
    with torch.no_grad():
        for each in (model, eager):
            each.table.mul_(2)  # the table that was kept is the old one, in eager as well
    same(fast, eager, 2, 4, 5, 6)
    for each in (model, eager):
        each.train()
        each(torch.ones(2, 4, 5, 6)).square().sum().backward()
        each.eval()
    torch.testing.assert_close(model.table.grad, eager.table.grad)
    assert not model.kept
    same(fast, eager, 2, 4, 5, 6)
    same(copy.deepcopy(fast), eager, 2, 4, 5, 6, fast_now=False)
    same(pickle.loads(pickle.dumps(fast)), eager, 2, 4, 5, 6, fast_now=False)
    assert fast(torch.randn(2, 4, 5, 6)).requires_grad


def test_gradients_of_a_kept_table_are_eagers() -> None:
    torch.manual_seed(0)
    model = Kept().eval()
    for p in model.parameters():
        p.requires_grad_(p is model.table)
    fast = refold.optimize(model, torch.randn(2, 4, 5, 6), measure=False)
    fast(torch.randn(2, 4, 5, 6)).square().sum().backward()
    assert model.table.grad is not None and model.kept
    model.table.requires_grad_(False)  # the kept one has its history still
    assert fast(torch.randn(2, 4, 5, 6)).requires_grad


def test_a_table_for_each_size() -> None:
    torch.manual_seed(0)
    model = Sized().eval()
    eager = copy.deepcopy(model)
    fast = refold.optimize(model, torch.randn(2, 3, 5, 4), measure=False)
    for shape in ((2, 3, 5, 4), (4, 3, 5, 4), (2, 6, 5, 4), (2, 3, 5, 4)):
        same(fast, eager, *shape, fast_now=shape[1] == 3)
    assert [*model.kept["tables"]] == [(3, 5), (6, 5)]


def test_tables_in_a_list_are_followed() -> None:
    torch.manual_seed(0)
    model = Levels().eval()
    eager = copy.deepcopy(model)
    fast = refold.optimize(model, torch.randn(2, 3, 4), measure=False)
    same(fast, eager, 2, 3, 4)
    with torch.no_grad():
        for each in (model, eager):
            each.levels[0].mul_(-2)
            each.levels[1].data[1:] += 3  # which PyTorch does not count
    same(fast, eager, 5, 3, 4)
    torch.manual_seed(1)
    other = torch.randn(3, 4)
    for each in (model, eager):
        each.levels[0] = other
    same(fast, eager, 5, 3, 4)
    for each in (model, eager):
        each.levels.append(other[0])
    same(fast, eager, 5, 3, 4)
    for each in (model, eager):
        each.levels[1:] = [other]  # the same once more
    same(fast, eager, 5, 3, 4)
    for each in (model, eager):
        each.levels[1:] = []
    same(fast, eager, 5, 3, 4, fast_now=False)  # what the kernels read is gone
    for each in (model, eager):
        each.levels[0] = other.double()
    same(fast, eager, 5, 3, 4, fast_now=False)


class Written(Levels):
    """Writes to a table that it holds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.levels[0].add_(1)
        return super().forward(x)


class Logs(Levels):
    """Notes something at each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.levels[1:] = [*self.levels[1:], x[0, 0]]
        return super().forward(x)


@pytest.mark.parametrize("kind", [Written, Logs])
def test_what_forward_changes_at_each_call_is_changed_once(kind: type[Levels]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    eager = copy.deepcopy(model)
    fast = refold.optimize(model, torch.randn(2, 3, 4), measure=False)
    for _ in range(3):
        same(fast, eager, 2, 3, 4, fast_now=False)
        assert len(model.levels) == len(eager.levels)
        torch.testing.assert_close(model.levels[0], eager.levels[0])
