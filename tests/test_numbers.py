"""Numbers among the arguments and attributes: one that counts, as a position does, varies as sizes
do, and a float that a schedule gives varies as a value."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import refold
from refold import growth, twin
from refold.capture import CaptureError, Example, capture
from refold.capture.arguments import Arguments
from refold.capture.program import Flat
from refold.capture.watch import Watch
from refold.derive import Options

WIDTH = 64


class Scaled(nn.Linear):
    def forward(self, x, scale):
        return torch.sigmoid(super().forward(x)).sum(1) * (scale if scale > 0 else 0.0)


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
    # of each module one for all floats, which forward's branch stands in the way of
    assert sum("another form" in m for m in caplog.messages) == 2 + 2


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


class Annealed(nn.Module):
    """A temperature and a share of noise, as a schedule gives them."""

    def __init__(self, wrong=""):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.wrong = wrong

    def forward(self, x, temperature=1.0, share=0.0):
        scores = self.last(torch.sigmoid(self.first(x))) / temperature
        shares = (1 - share) * torch.softmax(scores, -1) + share / scores.shape[-1]
        if self.wrong == "class":
            shares = shares * (2 if isinstance(share, float) else 3)
        elif self.wrong == "default dtype":
            shares = shares * (torch.arange(8) * share)
        elif self.wrong == "returned":
            return shares, share * 2
        elif self.wrong == "kept":
            self.last_share = share * 2
        elif self.wrong == "asked":
            shares = shares * 2 if share == 0.25 else shares
        return shares, torch.logsumexp(scores, -1) * temperature**2


SCHEDULE = [(1 / (1 + 0.3 * i), 0.05 * i) for i in range(9)]


def test_floats_that_a_schedule_gives_get_one_program(caplog):
    """Of any value, those that are not finite among them."""
    torch.manual_seed(0)
    model, x = Annealed().eval(), torch.randn(20, WIDTH)
    fast = refold.optimize(model, x, 2.0, 0.5, measure=False)
    taken = []
    with torch.no_grad():
        for temperature, share in (*SCHEDULE, (1e-30, -3.0), (float("inf"), float("nan"))):
            ours, theirs = fast(x, temperature, share), model(x, temperature, share)
            torch.testing.assert_close(ours, theirs, equal_nan=True)
            taken.append(refold.status(fast).fast)
        assert taken == [False] + [True] * (len(taken) - 1)
        torch.testing.assert_close(fast(x[:3], 0.7, 0.1), model(x[:3], 0.7, 0.1))
        model.last.weight.mul_(2.0)
        torch.testing.assert_close(fast(x, 0.7, 0.1), model(x, 0.7, 0.1))
        assert refold.status(fast).fast
    assert sum("kernels are made" in m for m in caplog.messages) == 1


def test_a_float_is_as_exact_as_in_eager():
    """It keeps its digits until it meets a tensor."""
    torch.manual_seed(0)
    model, x = Annealed().eval(), torch.randn(20, WIDTH)
    exact = copy.deepcopy(model).double()
    fast = refold.optimize(model, x, 2.0, 0.5, measure=False)
    with torch.no_grad():
        for temperature, share in SCHEDULE:
            truth = exact(x.double(), temperature, share)
            both = [m(x, temperature, share) for m in (fast, model)]
            for *found, value in zip(*both, truth, strict=True):
                ours, theirs = ((v - value).square().mean().sqrt() for v in found)
                assert ours <= 1.5 * theirs + 2e-7 * value.abs().max()
    assert refold.status(fast).fast


@pytest.mark.parametrize("wrong", ["class", "default dtype", "returned", "kept", "asked"])
def test_a_float_that_is_no_mere_factor_takes_the_original(wrong):
    model, x = Annealed(wrong).eval(), torch.randn(20, WIDTH)
    fast = refold.optimize(model, x, 2.0, 0.5, measure=False)
    with torch.no_grad():
        for temperature, share in (*SCHEDULE, (0.9, 0.25), (0.9, 0.25), (0.9, 0.5)):
            ours, theirs = fast(x, temperature, share), model(x, temperature, share)
            assert [type(v) for v in ours] == [type(v) for v in theirs]
            torch.testing.assert_close(ours, theirs)
            assert getattr(fast, "last_share", 0.0) in (share * 2, 0.0)


def test_a_float_beside_values_of_16_bits_takes_the_original():
    """PyTorch computes with all digits of the number, and a tensor of 16 bits has fewer."""
    model, x = Annealed().eval().bfloat16(), torch.randn(20, WIDTH, dtype=torch.bfloat16)
    fast = refold.optimize(model, x, 2.0, 0.5, measure=False)
    with torch.no_grad():
        for temperature, share in SCHEDULE:
            ours, theirs = fast(x, temperature, share), model(x, temperature, share)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert len(twin.state_of(fast).programs) == 1


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


class Softened(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        return torch.softmax(x / self.temperature, -1)


class Settled(nn.Module):
    """A temperature of a part, a scale of its own and a number of columns, which a loop sets."""

    def __init__(self, wrong=""):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.parts = nn.Sequential(Softened(2.0))
        self.again = self.parts[0]  # one part in two places
        self.scale, self.columns, self.wrong = 0.5, 4, wrong

    def forward(self, x):
        scores = self.parts(self.last(torch.sigmoid(self.first(x)))) * self.scale
        if self.wrong == "asked" and self.scale > 0.3:
            scores = scores * 2
        elif self.wrong == "class":
            scores = scores * (2 if isinstance(self.scale, float) else 3)
        elif self.wrong == "set":
            self.shown = self.scale * 2
        return scores, torch.cat([x[:, : self.columns], x], 1).sum(1) * self.columns


def _set(model, temperature, scale, columns=4):
    model.parts[0].temperature, model.scale, model.columns = temperature, scale, columns


def test_floats_that_are_attributes_get_one_program():
    """Those of a part as well; set on the original or on the fast module."""
    torch.manual_seed(0)
    model, x = Settled().eval(), torch.randn(20, WIDTH)
    fast, taken = refold.optimize(model, x, measure=False), []
    with torch.no_grad():
        for i, (temperature, scale) in enumerate((*SCHEDULE, (1e-30, -3.0), (2.0, float("nan")))):
            _set((model, fast)[i % 2], temperature, scale)
            torch.testing.assert_close(fast(x), model(x), equal_nan=True)
            taken.append(refold.status(fast).fast)
        assert taken == [False] + [True] * (len(taken) - 1)
        model.scale = 7  # of another class
        torch.testing.assert_close(fast(x), model(x))
        assert not refold.status(fast).fast
        _set(model, 3.0, 7.0)
        model.last.weight.mul_(2.0)
        torch.testing.assert_close(fast(x[:3]), model(x[:3]))
        assert refold.status(fast).fast and len(twin.state_of(fast).programs) == 2
        del model.scale
        with pytest.raises(AttributeError):
            fast(x)


def test_a_whole_number_that_is_an_attribute_varies():
    model, x = Settled().eval(), torch.rand(20, WIDTH)
    fast, taken = refold.optimize(model, x, measure=False), []
    with torch.no_grad():
        for columns in (5, 9, 17, 2, 1, 0, -3, 64, 65, 100):
            _set(model, 2.0, 0.5, columns)
            torch.testing.assert_close(fast(x), model(x))
            taken.append(refold.status(fast).fast)
    assert taken[1:4] == [True] * 3


class Weighed(nn.Module):
    """Losses that a schedule weighs: numbers beside tensors without dimensions."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.beta = 0.0

    def forward(self, x, share=0.5):
        scores = self.last(torch.sigmoid(self.first(x)))
        far, near = scores.square().mean(), scores.abs().sum(1)
        mixed = (1 - share) * far + share * near.max()
        return {"loss": near.mean() + self.beta * far, "mixed": mixed, "rows": near * self.beta}


def test_a_number_beside_a_loss_is_a_number():
    """It takes the loss's dtype, where a tensor of float64 would widen it."""
    torch.manual_seed(0)
    model, x = Weighed().eval(), torch.randn(20, WIDTH)
    fast, taken = refold.optimize(model, x, 0.5, measure=False), []
    with torch.no_grad():
        for i in range(8):
            model.beta, share = 0.1 * i, 0.3 + 0.1 * i
            torch.testing.assert_close(fast(x, share), model(x, share))
            taken.append(refold.status(fast).fast)
    assert all(taken[-3:]), taken


@pytest.mark.parametrize("wrong", ["asked", "class", "set"])
def test_an_attribute_that_is_no_mere_factor_is_as_it_was(wrong):
    model, x = Settled(wrong).eval(), torch.randn(20, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        for _, share in (*SCHEDULE, *SCHEDULE[:2] * 2):
            model.scale = share
            torch.testing.assert_close(fast(x), model(x))
            assert getattr(fast, "shown", share * 2) == share * 2


def test_an_attribute_of_a_part_in_two_places_is_put_back():
    model, x = Settled().eval(), torch.randn(20, WIDTH)
    places = (("again", "temperature"), ("parts.0", "temperature"))
    arguments = Arguments(model, Example((x,), settings=places))
    with torch.no_grad():
        Flat(model, arguments, (), Watch(model), ())(x, *arguments.carriers)
    assert type(model.again.temperature) is float
