"""Modules whose parts are in other modes than they: a dropout that goes on dropping in a service, a
batch norm that is frozen."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop = nn.Linear(8, 16), nn.Dropout(0.3)
        self.norm, self.b = nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.norm(self.drop(F.gelu(self.a(x))))).log_softmax(-1)


class Frozen(Net):
    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self


def _dropping(m: nn.Module) -> None:
    m.eval()
    m.drop.train()


def _frozen(m: nn.Module) -> None:
    m.train()
    m.norm.eval()


def _agree(fast: nn.Module, module: nn.Module, x: torch.Tensor) -> None:
    """Results, what was drawn and what was written are eager's, by the kernels."""
    found = []
    for one in (module, fast):
        torch.manual_seed(7)
        with torch.no_grad():
            found.append([one(x), one(x[:5]), *map(torch.clone, one.buffers()), torch.rand(1)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


SETS: dict[str, Callable[[nn.Module], object]] = {
    "dropping": _dropping,
    "frozen": _frozen,
    "eval": nn.Module.eval,
    "train": nn.Module.train,
}


@pytest.mark.parametrize("first", SETS)
def test_each_part_has_its_own_mode(first: str) -> None:
    torch.manual_seed(0)
    module, x = Net(), torch.randn(6, 8)
    SETS[first](module)
    fast = refold.optimize(copy.deepcopy(module), x, measure=False)
    assert [m.training for m in fast.modules()] == [m.training for m in module.modules()]
    _agree(fast, module, x)
    assert refold.status(fast).fast, refold.status(fast).reason
    for name in ("dropping", "eval") if first == "dropping" else ("dropping",):
        for one in (module, fast):
            SETS[name](one)
        _agree(fast, module, x)  # the second call in a row has kernels
        assert refold.status(fast).fast, refold.status(fast).reason


def test_a_train_of_the_users_own_is_followed() -> None:
    module, x = Frozen().eval(), torch.randn(6, 8)
    fast = refold.optimize(copy.deepcopy(module), x, measure=False)
    for one in (module, fast):
        one.train()
    _agree(fast, module, x)
    assert refold.status(fast).fast and not fast.norm.training
    fast.norm.train()
    with torch.no_grad():
        fast(x)
    assert refold.status(fast).reason == "norm is in the same mode as the model"


def test_where_no_mode_is_asked_for_none_is_compared() -> None:
    module, x = nn.Sequential(nn.Linear(8, 16), nn.Softmax(-1)), torch.randn(6, 8)
    fast = refold.optimize(module, x, measure=False)
    module[1].eval()
    with torch.no_grad():
        fast(x)
    assert refold.status(fast).fast, refold.status(fast).reason


class Sets(Net):
    """Whose forward sets modes. then: behind the batch norm."""

    def __init__(self, first: Callable[[Net], object], then: Callable[[Net], object]) -> None:
        super().__init__()
        self.hooks = [first, then]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hooks[0](self)
        y = self.norm(self.drop(F.gelu(self.a(x))))
        self.hooks[1](self)
        return self.b(y).log_softmax(-1)


def _nothing(m: Net) -> None:
    pass


SET_BY_FORWARD: dict[str, tuple[Callable[[Net], object], Callable[[Net], object], bool]] = {
    "a part, before it runs": (lambda m: m.drop.train(), _nothing, True),
    "a part, when it has run": (_nothing, lambda m: m.norm.eval(), True),
    "its own": (lambda m: m.eval(), _nothing, False),
    "another at each call": (_nothing, lambda m: m.drop.train(not m.drop.training), False),
}


@pytest.mark.parametrize("name", SET_BY_FORWARD)
def test_modes_that_forward_sets_are_those_of_later_calls(name: str) -> None:
    """Modes are eager's behind each call, and what is drawn under a seed, by graphs, too."""
    *sets, served = SET_BY_FORWARD[name]
    torch.manual_seed(0)
    module, x = Sets(*sets).eval(), torch.randn(6, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = refold.optimize(copy.deepcopy(module), x, measure=False)
    for mode in ("train", "eval"):
        for one in (module, fast):
            SETS[mode](one)
        for _ in range(3):
            _agree(fast, module, x)
            assert [m.training for m in fast.modules()] == [m.training for m in module.modules()]
        assert refold.status(fast).fast or not served, refold.status(fast).reason


@pytest.mark.parametrize("training", [False, True])
def test_a_module_of_inference_tensors_is_taken(training):
    """Its parameters and buffers were made in inference mode: their writes are not counted."""
    x = torch.randn(8, 8)
    with torch.inference_mode():
        module = Net().train(training)
        before = {k: v.clone() for k, v in module.state_dict().items()}
        fast = refold.optimize(module, x, measure=False)
        torch.testing.assert_close(module.state_dict(), before)
        _agree(fast, copy.deepcopy(module), x)
        assert refold.status(fast).fast
        for one in (module.a.weight, module.norm.running_mean):
            one.add_(1)
            _agree(fast, copy.deepcopy(module), x)
        assert module.norm.running_mean.is_inference()


def test_a_module_that_is_optimized_under_autocast_computes_in_its_own_dtype():
    module, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast = refold.optimize(module, x, measure=False)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), module(x))
    with torch.no_grad():
        assert fast(x).dtype is torch.float32
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert refold.status(fast).fast
