"""Numbers inside what attributes hold: in dicts, lists and objects, and in these in each other."""

from __future__ import annotations

import copy
import dataclasses
import types

import pytest
import torch
from torch import nn

import refold
from refold import twin

WIDTH = 64


@dataclasses.dataclass
class Config:
    temperature: float = 2.0
    gains: list = dataclasses.field(default_factory=lambda: [1.0, 0.5])
    more: dict = dataclasses.field(default_factory=lambda: {"columns": 4, 7: 0.25, "kind": "a"})


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    temperature: float = 2.0


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        return torch.softmax(x / self.config.temperature, -1)


class Net(nn.Module):
    """It and its part read one configuration."""

    def __init__(self, wrong=""):
        super().__init__()
        self.config, self.wrong = Config(), wrong
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.parts = nn.Sequential(Head(self.config))

    def forward(self, x):
        config = self.config
        scores = self.parts(self.last(torch.sigmoid(self.first(x)))) * config.gains[1]
        if config.more["kind"] == "b":
            scores = scores + 1
        if self.wrong == "class":
            scores = scores * (2 if isinstance(config.more[7], float) else 3)
        elif self.wrong == "returned":
            return scores, dict(config.more)
        columns = config.more["columns"]
        return scores * config.more[7], torch.cat([x[:, :columns], x], 1).sum(1) * columns


def _sets():
    """What sets a number of a model to a value of a schedule, by where it is."""
    return {
        "field": lambda m, v: setattr(m.config, "temperature", 1 + v),
        "namespace": lambda m, v: setattr(m.config, "temperature", v),
    }


def _same(fast, model, x):
    ours, theirs = fast(x), model(x)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    return refold.status(fast).fast


@pytest.mark.parametrize("where", _sets())
def test_floats_inside_get_one_program(where):
    """Set on the original or on the fast module; two of them, one after the other."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(20, WIDTH)
    if where == "namespace":
        model.config = model.parts[0].config = types.SimpleNamespace(**vars(model.config))
    fast, taken = refold.optimize(model, x, measure=False), []
    with torch.no_grad():
        for i in range(8):
            _sets()[where]((model, fast)[i % 2], 0.125 * i + 0.0625)
            taken.append(_same(fast, model, x))
        assert taken == [False] + [True] * (len(taken) - 1)
        model.config.more["kind"] = "b"
        assert not _same(fast, model, x)
        assert _same(fast, model, x)  # it has stayed
        _sets()[where](model, 3)  # a whole number
        assert not _same(fast, model, x)
        model.config = copy.deepcopy(model.config)  # the part keeps the other
        _sets()[where](model, 0.7)
        _same(fast, model, x)
        model.parts[0].config = model.config
        _same(fast, model, x)
    assert len(twin.state_of(fast).programs) <= 6


def test_two_numbers_inside_vary():
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(20, WIDTH)
    fast, taken = refold.optimize(model, x, measure=False), []
    with torch.no_grad():
        for i in range(9):
            model.config.gains[1], model.config.more[7] = 1 + i / 3, 0.1 * i
            taken.append(_same(fast, model, x))
        assert taken == [False] + [True] * (len(taken) - 1)
        for value in (float("inf"), float("nan"), 0.0, -1e30):
            model.config.more[7] = value
            assert _same(fast, model, x)
        del model.config.more[7]
        with pytest.raises(KeyError):
            fast(x)
    assert len(twin.state_of(fast).programs) == 2


def test_a_whole_number_inside_varies():
    model, x = Net().eval(), torch.rand(20, WIDTH)
    fast, taken = refold.optimize(model, x, measure=False), []
    with torch.no_grad():
        for columns in (5, 9, 17, 2, 1, 0, -3, 64, 65, 100):
            model.config.more["columns"] = columns
            taken.append(_same(fast, model, x))
    assert taken[1:4] == [True] * 3


@pytest.mark.parametrize("wrong", ["class", "returned"])
def test_a_number_inside_that_is_no_mere_factor_is_as_it_was(wrong):
    model, x = Net(wrong).eval(), torch.randn(20, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        for share in (0.1, 0.2, 0.3, 0.1, 0.4):
            model.config.more[7] = share
            ours, theirs = fast(x), model(x)
            if wrong == "returned":
                assert ours[1] == theirs[1] and type(ours[1][7]) is float
                ours, theirs = ours[0], theirs[0]
            torch.testing.assert_close(ours, theirs)


class Twice(nn.Module):
    """It reads a number by one of two ways that lead to it."""

    def __init__(self, config):
        super().__init__()
        self.linear, self.config = nn.Linear(WIDTH, 8), config
        self.holder = types.SimpleNamespace(config=config)
        self.apply_to = lambda x: x * config["scale"]

    def forward(self, x):
        y = torch.sigmoid(self.linear(x)) * self.holder.config["scale"]
        return self.apply_to(y) + self.config["scale"]


def test_a_number_that_several_ways_lead_to_is_one():
    model, x = Twice({"scale": 1.0}).eval(), torch.randn(20, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        for i in range(6):
            model.config["scale"] = 0.3 * i
            _same(fast, model, x)
        model.holder.config = {"scale": 5.0}
        for i in range(6):
            model.config["scale"] = 0.3 * i
            _same(fast, model, x)


def test_an_object_that_cannot_be_written_or_copied_keeps_the_original():
    import threading

    model, x = Net().eval(), torch.randn(20, WIDTH)
    model.config.lock = threading.Lock()  # no copy is made of it
    model.parts[0].config = Slotted()
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        for i in range(5):
            model.config.more[7] = 0.1 * i
            model.parts[0].config = Slotted(1.0 + i)
            _same(fast, model, x)
            assert model.config.more[7] == 0.1 * i
