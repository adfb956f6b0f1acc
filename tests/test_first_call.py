"""What forward sets at its first call alone: the calls behind it are fast. And hooks that forward
registers at such a call, in a library, for values that it is asked for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import refold
from refold.runtime.structure import _refold_acts_around


class Begins(nn.Module):
    """Scales itself by the first batch that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(16, 16), nn.Parameter(torch.ones(16))
        self.begun, self.by = False, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if not self.begun:
            self.scale.data.copy_(1 / (y.std(0) + 0.01))
            self.begun, self.by = True, "a batch"
        return torch.softmax(y * self.scale, -1)


class Flags(nn.Module):
    """Sets a flag, and is another function from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(16, 16), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2.0 if self.seen else 1.0
        self.seen = True
        return torch.softmax(self.layer(x) * factor, -1)


class Within(nn.Module):
    """Knows whether it is inside of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.inside = nn.Linear(16, 16), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.inside
        self.inside = True
        y = torch.softmax(self.layer(x), -1)
        self.inside = False
        return y * 2 if self.inside else y


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.count = nn.Linear(16, 16), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return torch.softmax(self.layer(x) * self.count, -1)


@pytest.mark.parametrize("cls", (Begins, Flags))
def test_calls_behind_the_first_are_fast(cls: type[nn.Module]) -> None:
    module = cls().eval()
    before = copy.deepcopy(module.state_dict())
    other = copy.deepcopy(module)
    fast = refold.optimize(module, torch.randn(12, 16), measure=False)
    assert fast is not module
    assert all(torch.equal(v, before[k]) for k, v in fast.state_dict().items())
    taken = []
    with torch.no_grad():
        for rows in (12, 12, 5):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(fast(x), other(x))
            taken.append(refold.status(fast).fast)
    assert taken == [False, True, True]
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in fast.state_dict().items())


def test_set_and_set_back() -> None:
    """What is as it was is no change; it is compared before each call."""
    module, x = Within().eval(), torch.randn(6, 16)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
        assert refold.status(fast).fast
        fast.inside = True
        with pytest.raises(AssertionError):
            fast(x)


def test_a_counter() -> None:
    """What counts at each call keeps the original."""
    module = Counts().eval()
    other = copy.deepcopy(module)
    with pytest.warns(UserWarning, match="sets the attribute count"):
        fast = refold.optimize(module, torch.randn(12, 16), measure=False)
    assert fast.count == 0
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(12, 16)
            torch.testing.assert_close(fast(x), other(x))
    assert fast.count == 3


class Collects(nn.Module):
    """Gives the values inside if it is asked, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.hooked = False

    def forward(self, x: torch.Tensor, inner: bool = False) -> Any:
        from transformers.utils import output_capturing as capturing

        if inner and not self.hooked:
            for layer in (self.first, self.second):
                capturing.install_output_capuring_hook(layer, "hidden_states", 0)
            self.hooked = True
        if not inner:
            return self.second(torch.softmax(self.first(x), -1))
        collected: dict[str, list[torch.Tensor]] = {"hidden_states": []}
        token = capturing._active_collector.set(collected)
        try:
            y = self.second(torch.softmax(self.first(x), -1))
        finally:
            capturing._active_collector.reset(token)
        return y, tuple(collected["hidden_states"])


def test_collected_inside() -> None:
    """A library's own hooks cost no fast call."""
    pytest.importorskip("transformers.utils.output_capturing")
    module, x = Collects().eval(), torch.randn(6, 16)
    other = copy.deepcopy(module)
    fast = refold.optimize(module, x, measure=False)
    taken = []
    with torch.no_grad():
        for inner in (False, True, True, False, False, True):
            torch.testing.assert_close(fast(x, inner=inner), other(x, inner=inner))
            taken.append(refold.status(fast).fast)
    assert taken == [True, False, True, False, True, True]
    with torch.no_grad():  # a hook of the user's acts at each call
        seen: list[Any] = []
        hook = fast.second.register_forward_hook(lambda *args: seen.append(args[2]))
        fast(x)
        assert len(seen) == 1
        hook.remove()
        torch.testing.assert_close(fast(x), other(x))


def test_collected_outside() -> None:
    """A library's own hooks act where somebody outside of forward collects."""
    capturing = pytest.importorskip("transformers.utils.output_capturing")
    module, x = Collects().eval(), torch.randn(6, 16)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        fast(x, inner=True)
        for _ in range(3):
            fast(x)
        assert refold.status(fast).fast
        for _ in range(2):
            collected: dict[str, list[torch.Tensor]] = {"hidden_states": []}
            token = capturing._active_collector.set(collected)
            fast(x)
            capturing._active_collector.reset(token)
            assert len(collected["hidden_states"]) == 3
            fast(x)
            assert refold.status(fast).fast


def test_of_which_hooks_nobody_knows_what_they_do() -> None:
    capturing = pytest.importorskip("transformers.utils.output_capturing")
    layer = nn.Linear(4, 4)
    assert not _refold_acts_around(layer)
    capturing.install_output_capuring_hook(layer, "hidden_states", 0)
    assert not _refold_acts_around(layer)
    token = capturing._active_collector.set({})
    assert _refold_acts_around(layer)
    capturing._active_collector.reset(token)
    layer.register_forward_hook(lambda *args: None)
    assert _refold_acts_around(layer)
