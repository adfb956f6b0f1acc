"""Kernels for a module whose parts, code or globals were changed and stay so."""

from __future__ import annotations

import copy
import functools
import logging

import pytest
import torch
from torch import nn

import refold
from lives import SETTINGS, STRUCTURES, UNDO, WIDTH, Gate, Listed, half, settle
from refold import growth, twin

# kernels are not made for what acts around a part, nor where nothing is left to compute
NONE = (
    *("a hook", "a hook before", "pruned", "a forward of the instance"),
    "the model's forward patched",
)


@functools.cache
def made(cls: type[nn.Module]) -> nn.Module:
    return refold.optimize(cls().eval(), torch.randn(16, WIDTH), measure=False)


def follows(fast: nn.Module, calls: int = 1) -> bool:
    """Whether the last of some calls was fast; each is right."""
    for _ in range(calls):
        x = torch.randn(9, WIDTH)
        with torch.no_grad():
            expected = twin.original(fast)(x)
            torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
    return refold.status(fast).fast


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_change_that_stays_gets_kernels(name, caplog):
    cls, change = STRUCTURES[name]
    fast = copy.deepcopy(made(cls))
    settle(fast)
    try:
        change(fast)
        assert not follows(fast)  # the first call is the original's: it may not stay so
        assert follows(fast, 2) == (name not in NONE), refold.status(fast)
        for p in fast.parameters():  # what is folded of the new ones follows
            p.data.mul_(0.9)
        assert follows(fast) == (name not in NONE), refold.status(fast)
        assert sum("kernels are made" in m for m in caplog.messages) <= 1
    finally:
        SETTINGS["shift"] = 0.5
        while UNDO:
            setattr(*UNDO.pop())


def test_what_is_changed_back_has_its_kernels_still(caplog):
    fast = copy.deepcopy(made(Listed))
    gate, other = fast.layers[1], nn.Tanh()
    settle(fast)
    for _ in range(3):
        fast.layers[1] = other
        follows(fast, 2)
        assert refold.status(fast).fast
        fast.layers[1] = gate
        assert follows(fast)
    assert sum("parts were changed" in m for m in caplog.messages) == 1


def test_a_forward_that_is_patched_by_the_same_is_followed():
    """The kernels' text is the same, and what it knows of the code is not."""
    fast = copy.deepcopy(made(Listed))
    settle(fast)
    plain = Gate.forward

    @functools.wraps(plain)
    def forward(self, x):
        return plain(self, x)

    try:
        Gate.forward = forward
        assert not follows(fast)
        assert follows(fast, 2), refold.status(fast)
        Gate.forward = half
        assert not follows(fast)
    finally:
        Gate.forward = plain


def test_changes_from_call_to_call_get_none_and_the_last_says_what_to_do(monkeypatch, caplog):
    monkeypatch.setattr(growth, "MOST", 1)
    fast = copy.deepcopy(made(Listed))
    settle(fast)
    for _ in range(3):
        fast.layers.append(nn.Tanh())
        assert not follows(fast)
    assert not any("kernels are made" in m for m in caplog.messages)
    assert follows(fast, 1)
    fast.layers.append(nn.Sigmoid())
    assert not follows(fast, 3)
    assert refold.status(fast).reason.endswith("call refold.optimize again")
    again = refold.optimize(fast, torch.randn(9, WIDTH), measure=False)
    assert follows(again)


class Remembering(nn.Module):
    """Writes to a dict that it is given, as a decoder with a cache does."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, cache=None):
        y = torch.relu(self.fc(x))
        if cache is not None:
            cache["y"] = y
        return y


def test_why_there_are_no_kernels_for_a_form_stands_in_its_status(caplog):
    """Not what the kernels of another form expect."""
    fast = refold.optimize(Remembering().eval(), torch.randn(4, WIDTH), measure=False)
    told = "forward changes its argument cache"
    with torch.no_grad():
        for x in (torch.randn(4, WIDTH), torch.randn(1, WIDTH), torch.randn(1, WIDTH)):
            fast(x, {})
            assert refold.status(fast).reason == told
            fast(torch.randn(4, WIDTH))
            assert refold.status(fast).fast
    assert f"refold: the original forward was taken: {told}" in caplog.messages


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.WARNING, "refold")


class Branches(nn.Module):
    """Has kernels in train mode alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        if not self.training and x.sum() > 0:
            x = -x
        return torch.softmax(self.layer(x), -1)


@pytest.mark.parametrize("why", ("a mode without kernels", "a hook"))
def test_calls_that_nothing_is_made_for_look_through_nothing(why, monkeypatch):
    fast = refold.optimize(Branches().train(), torch.randn(16, WIDTH), measure=False)
    assert follows(fast)
    if why == "a hook":
        fast.layer.register_forward_hook(lambda *args: None)
    else:
        fast.eval()
    assert not follows(fast)
    looked = []
    for space in twin.namespaces(fast):
        file, own = space._refold_file, space._refold_file.reached
        file.reached = lambda model, own=own: looked.append(model) or own(model)
    if why != "a hook":
        monkeypatch.setattr(growth, "is_apart", lambda *args: looked.append(args))
    assert not follows(fast, 3)
    assert not looked
