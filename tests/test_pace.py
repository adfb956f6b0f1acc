"""How soon what is folded is computed anew, where parameters change again and again."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch.func import functional_call

import refold
from lives import WIDTH, Net, fresh
from refold import twin


class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return super().forward(x) * self.scale


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return refold.optimize(Scaled().eval(), torch.randn(16, WIDTH), measure=False)


class Clock:
    """A clock of tests: no renewal pays until it is moved on."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(made, monkeypatch):
    found = Clock()
    for space in twin.namespaces(made):
        monkeypatch.setattr(space, "time", found)
    return found


@pytest.fixture
def fast(made, clock):
    return copy.deepcopy(made)


@pytest.fixture
def renewed(made, monkeypatch):
    """What was looked at anew."""
    found: list[object] = []
    for space in twin.namespaces(made):
        renew = space._refold_renew
        monkeypatch.setattr(space, "_refold_renew", lambda *a, go=renew: found.append(a) or go(*a))
    return found


def call(fast):
    """Whether a call was fast; its result is right in any case."""
    x = torch.randn(9, WIDTH)
    other = fresh(fast, Scaled)
    other.scale = fast.scale
    with torch.no_grad():
        torch.testing.assert_close(fast(x), other(x), rtol=2e-4, atol=2e-4)
    return refold.status(fast).fast


def loaded(fast):
    fast.load_state_dict({k: v.clone() for k, v in fast.state_dict().items()})


def stepped(fast):
    fast.train()
    fast(torch.randn(8, WIDTH)).square().mean().backward()
    torch.optim.SGD(fast.parameters(), lr=1e-6).step()
    fast.zero_grad()
    fast.eval()


def assigned(fast):
    state = {
        k: -v.detach().clone() if k.startswith("head") else v.clone()
        for k, v in fast.state_dict().items()
    }
    fast.load_state_dict(state, assign=True)


def by_data(fast):
    fast.head.weight.data.mul_(-1)


def fused(fast):
    parameters = list(fast.parameters())
    for p in parameters:
        p.grad = torch.randn_like(p)
    torch.optim.Adam(parameters, lr=1e-3, fused=True).step()
    fast.zero_grad()


WRITES = {f.__name__: f for f in (loaded, stepped, assigned, by_data, fused)}


def driven(fast, write, most=40):
    """Writes and calls in turns, until a renewal was put off."""
    for _ in range(most):
        write(fast)
        if not call(fast):
            return
    raise AssertionError("nothing was put off")


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_changes_before_each_call_takes_the_original(fast, renewed, write, caplog):
    with caplog.at_level(logging.ERROR, "refold"):
        driven(fast, write)
        renewed.clear()
        for _ in range(10):
            write(fast)
            assert not call(fast)
    assert not renewed and not caplog.records
    assert "put off" in refold.status(fast).reason


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_kernels_come_back_when_parameters_stay(fast, write):
    driven(fast, write)
    assert any(call(fast) for _ in range(3))
    assert call(fast)
    write(fast)
    assert not call(fast)  # the last renewal has not paid either
    assert any(call(fast) for _ in range(8))


def test_each_renewal_that_has_not_paid_is_waited_for_longer(fast):
    waits = []
    driven(fast, loaded)
    for _ in range(5):
        waits.append(next(i for i in range(100) if call(fast)))
        loaded(fast)
        call(fast)
    assert waits == [0, 2, 6, 14, 30]


def test_one_that_has_paid_brings_back_the_next(fast, clock):
    driven(fast, loaded)
    for _ in range(2):
        while not call(fast):
            pass
        clock.now += 1e6
        loaded(fast)
        again = call(fast)
    assert again


def test_what_seldom_changes_is_followed_at_once(fast, clock):
    for _ in range(30):
        loaded(fast)
        assert call(fast)
        clock.now += 1e6


def test_settings_that_change_before_each_call_are_not_looked_for(fast, monkeypatch):
    looked = []
    for space in twin.namespaces(fast):
        init = space._RefoldStructure.__init__
        monkeypatch.setattr(
            space._RefoldStructure, "__init__", lambda *a, go=init: looked.append(1) or go(*a)
        )
    monkeypatch.setattr(twin.state_of(fast), "grow", None)
    for at in range(60):
        fast.scale = 2.0 + at
        assert not call(fast)
    assert len(looked) < 20
    fast.scale = 1.0
    assert any(call(fast) for _ in range(70))
    fast.scale = 3.0
    assert not call(fast)


def test_parameters_given_with_each_call(fast, monkeypatch):
    monkeypatch.setattr(twin.state_of(fast), "grow", None)
    x, other = torch.randn(9, WIDTH), fresh(fast, Scaled)
    for at in range(30):
        given = {k: v.detach() * (1 + 0.1 * at) for k, v in fast.named_parameters()}
        with torch.no_grad():
            found = functional_call(fast, given, (x,))
            expected = functional_call(other, given, (x,))
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=1e-3)
    assert any(call(fast) for _ in range(70))


def test_what_a_graph_may_replay_is_never_put_off(fast):
    call(fast)
    ((_, _, cache),) = twin.caches_of(fast)
    cache.pace.always = True
    for _ in range(30):
        loaded(fast)
        assert call(fast)


def test_parameters_that_kernels_read_as_they_lie_are_followed_without_looking(fast, renewed):
    call(fast)
    ((_, _, cache),) = twin.caches_of(fast)
    lie = [p for name, p in fast.named_parameters() if name not in cache.audited]
    assert lie and len(cache.copies) == len(cache.audited)
    renewed.clear()
    with torch.no_grad():
        for p in lie:
            p.mul_(1.5)
            assert call(fast)
    assert not renewed
