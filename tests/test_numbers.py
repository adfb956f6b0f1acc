"""Numbers among the arguments: one that counts, as a position does, varies as sizes do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import refold
from refold import growth, twin
from refold.capture import CaptureError, Example, capture
from refold.derive import Options

WIDTH = 64


class Scaled(nn.Linear):
    def forward(self, x, scale):
        return torch.sigmoid(super().forward(x)).sum(1) * scale


def test_what_varies_is_found_by_what_came():
    """The third form of a kind tells; of many no further one gets kernels."""
    x = torch.randn(4, WIDTH)
    first = growth.form((x, 5), {"gain": 1.0})
    grow, found = growth.Growth("", "cpu", Options(), frozenset({first})), []
    for at, gain in ((6, 1.0), (7, 1.0), (7, 1.0), (7, 2.0), (8, 2.0), (9, 2.0), (6, 1.0)):
        found.append(grow._varying(growth.form((x, at), {"gain": gain}), {"at": at}))
    assert found == [None, {"at"}, set(), None, None, None, None]
    assert grow._varying(growth.form((x[None], 5), {"gain": 1.0}), {"at": 5}) == set()


def test_a_number_is_captured_as_a_size():
    example = Example((torch.randn(2, 1, WIDTH), 7), counted=frozenset({"at"}))
    captured = capture(Stepped().eval(), example, training=False)
    (name,) = captured.numbers
    assert captured.numbers[name] == "at" and captured.ranges[name] == (2, 31)
    assert "1 + at <= 32" in captured.conditions
    fixed = Example((torch.randn(4, WIDTH), 7), counted=frozenset({"at"}))
    with pytest.raises(CaptureError, match="at does not vary by itself"):
        capture(Chosen().eval(), fixed, training=False)


def test_a_number_that_counts_gets_no_kernels_for_each_step(caplog):
    """As a position in a sequence does; one that comes again does."""
    model, x = Scaled(WIDTH, 8).eval(), torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, scale=1.0, measure=False)
    counting = copy.deepcopy(fast)
    with torch.no_grad():
        for scale in map(float, (*range(2, 12), *range(2, 12))):
            torch.testing.assert_close(counting(x, scale=scale), model(x, scale=scale))
        assert len(twin.state_of(counting).programs) == 1
        for scale in (2.0, 3.0, 2.0, 3.0, 1.0, 2.0):
            torch.testing.assert_close(fast(x, scale=scale), model(x, scale=scale))
        assert refold.status(fast).fast and len(twin.state_of(fast).programs) == 3
    assert sum("another form" in m for m in caplog.messages) == 2


class Stepped(nn.Module):
    """A step of decoding with the keys in a buffer, which the caller gives the position in."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(4, 32, WIDTH))

    def forward(self, x, at):
        self.keys[: x.shape[0], at : at + x.shape[1]] = self.key(x)
        keys = self.keys[: x.shape[0], : at + x.shape[1]]
        return torch.softmax(self.query(x) @ keys.mT, -1) @ keys


def test_a_position_is_as_free_as_a_size(caplog):
    """One program serves all steps: from the second further position on, in all generations."""
    torch.manual_seed(0)
    model = Stepped().eval()
    fast = refold.optimize(model, torch.randn(2, 1, WIDTH), 5, measure=False)
    original, taken = copy.deepcopy(model), []
    with torch.no_grad():
        for rows, length in ((2, 7), (3, 5), (2, 4)):
            for at in range(2 if taken else 6, length + 8):
                x = torch.randn(rows, 1, WIDTH)
                torch.testing.assert_close(fast(x, at), original(x, at))
                torch.testing.assert_close(fast.keys, original.keys)
                taken.append(refold.status(fast).fast)
        assert taken == [False] + [True] * (len(taken) - 1)
        assert len(twin.state_of(fast).programs) == 2
        assert sum("kernels are made" in m for m in caplog.messages) == 1
        for at in (0, 1, 31, 32, 5):  # what stands for a size is 2 or more, and stays within
            torch.testing.assert_close(fast(x, at), original(x, at))


class Asked(nn.Linear):
    def forward(self, x, at):
        y = torch.sigmoid(super().forward(x)).sum(1)
        return y * 2 if isinstance(at, int) else y * 3


class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def forward(self, x, at):
        return torch.sigmoid(self.parts[at](x)).sum(1)


@pytest.mark.parametrize("made", [lambda: Asked(WIDTH, 8), Chosen])
def test_a_number_that_is_no_size_takes_the_original(made):
    """Its class is asked for, or it chooses a part."""
    model, x = made().eval(), torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, 2, measure=False)
    with torch.no_grad():
        for at in (3, 4, 5, 6, 7, 2, 3):
            torch.testing.assert_close(fast(x, at), model(x, at))
    assert len(twin.state_of(fast).programs) == 1
