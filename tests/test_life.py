"""Ordinary life of a fast module: whatever writes the parameters, its next result is right.

Each row of WRITES is one way in which programs write parameters or statistics. After it the fast
module's next call must agree with a fresh module of the same state. Rows of STRUCTURES change what
the model is made of or what its code reads; the original may be taken then, the result is right.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import lives
import refold
from lives import (
    SETTINGS,
    STRUCTURES,
    UNDO,
    WIDTH,
    WRITES,
    Listed,
    Net,
    Tied,
    agrees,
    at_once,
    settle,
)
from refold import introspect, twin


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return refold.optimize(Net(), torch.randn(16, WIDTH), measure=False)


@pytest.fixture
def fast(made):
    """A twin of its own in eval mode that has been called, with a fresh state."""
    module = copy.deepcopy(made)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * 0.3)
        for b in module.buffers():
            b.copy_(torch.rand(b.shape) + 0.5 if b.is_floating_point() else torch.tensor(0))
    settle(module.eval())
    return module


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_followed_at_the_next_call(fast, name):
    agrees(fast)
    WRITES[name](fast)
    agrees(fast.eval())


CALLING = ("averaged weights swapped in and out", "views of one flat buffer")


@pytest.mark.parametrize("again", [False, True], ids=["unseen", "called in between"])
@pytest.mark.parametrize("name", [n for n in WRITES if n not in CALLING])
def test_a_write_while_the_original_is_taken_is_followed_behind_it(fast, name, again):
    """What is not compared while there is a reason is not known when it has gone."""
    handle = fast.head.register_forward_hook(lambda *a: None)
    with torch.no_grad():
        fast(torch.randn(5, WIDTH))
    WRITES[name](fast)
    if again:
        with torch.no_grad():
            fast.eval()(torch.randn(5, WIDTH))
    handle.remove()
    agrees(fast.eval())
    agrees(fast.eval())


def test_a_setting_that_training_alone_reads_keeps_the_kernels_in_eval_mode():
    """Loops change momentum and what is dropped as they go on; in train mode it counts."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    x = torch.randn(6, 8)
    fast = refold.optimize(model.eval(), x, measure=False)
    own = refold.original(fast)
    with torch.no_grad():
        fast(x)
        fast[1].momentum, fast[2].p = 0.7, 0.1
        assert introspect.fallback_reason(fast, (x,)) is None
        torch.testing.assert_close(fast(x), type(own).forward(own, x), rtol=1e-4, atol=1e-5)
        fast.train()
        before = fast[1].running_mean.clone()
        fast(x)
        moved = before * 0.3 + 0.7 * model[0](x).mean(0)
        torch.testing.assert_close(fast[1].running_mean, moved, rtol=1e-4, atol=1e-5)
        fast.eval()[1].eps = 0.5
        assert "eps of 1" in introspect.fallback_reason(fast, (x,))


@pytest.mark.parametrize("puts_off", [False, True])
def test_writes_at_random(fast, puts_off, monkeypatch):
    """Programs of writes, calls and mode changes, drawn at random: where all are followed at once,
    and where the original is taken while they come one after the other."""
    if puts_off:  # some writes compare on their way
        monkeypatch.setattr(lives, "agrees", functools.partial(agrees, kernels=False))
    with contextlib.nullcontext(fast) if puts_off else at_once(fast):
        _written_at_random(fast, not puts_off)


def _written_at_random(fast, kernels):
    names = sorted(WRITES)
    for seed in range(12):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(6):
            name = names[int(torch.randint(len(names), (), generator=draw))]
            if name not in ("views of one flat buffer", "cumulative statistics"):
                WRITES[name](fast)
            for t in (*fast.parameters(), fast.body[1].running_mean, fast.body[1].running_var):
                low = 0.1 if t is fast.body[1].running_var else -1.0
                t.data.clamp_(low, 1.0)  # so that nothing grows without end
            if torch.rand((), generator=draw) < 0.7:
                agrees(fast.eval(), kernels=kernels)


def test_a_write_to_part_is_found_by_the_audit_and_told(fast, caplog):
    """Within the stated number of calls: a call looks through one more KiB of what was copied."""
    draw = torch.Generator().manual_seed(3)
    calls = refold.status(fast).audit_calls
    assert 0 < calls < 200
    for _ in range(6):
        caplog.clear()
        weight = (fast.head.weight, fast.body[0].weight)[int(torch.randint(2, (), generator=draw))]
        at = int(torch.randint(weight.numel(), (), generator=draw))
        weight.data.view(-1)[at] += 100.0
        x = torch.randn(5, WIDTH)
        with torch.no_grad():
            for _ in range(calls):
                fast(x)
        agrees(fast)
        told = [r for r in caplog.records if "does not count" in r.message]
        assert not told or told[0].levelno == logging.ERROR


def test_gradients_fold_nothing(fast, monkeypatch):
    """While it trains, nothing is folded: the original runs, and no fold is computed for it."""
    ((made, _),) = twin.state_of(fast).programs
    monkeypatch.setattr(made.namespace, "_refold_renew", lambda *a: pytest.fail("folded"))
    optimizer = torch.optim.SGD(fast.parameters(), 0.01)
    for _ in range(2):
        fast.train()(torch.randn(8, WIDTH)).sum().backward()
        optimizer.step()


class Wrapped(torch.Tensor):
    """Computes by a tensor that it holds and has no memory of its own, as a DTensor."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def bare(v):
            return v.held if isinstance(v, Wrapped) else v

        found = func(*pytree.tree_map(bare, args), **pytree.tree_map(bare, kwargs or {}))
        return Wrapped(found) if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("make", [Wrapped, torch.Tensor.to_sparse], ids=["wrapped", "sparse"])
def test_optimizers_of_other_models_step_tensors_without_memory(fast, make):
    """The end of every optimizer's step is looked for, whatever it has stepped."""
    with torch.no_grad():
        fast(torch.randn(5, WIDTH))
    before = torch.randn(4, 4)
    other, usual = make(before.clone()).requires_grad_(), nn.Parameter(before.clone())
    for p in (other, usual):
        p.grad = make(torch.ones(4, 4)) if p is other else torch.ones(4, 4)
        torch.optim.SGD([p], 0.1, foreach=False).step()
    now = other.held if make is Wrapped else other.detach().to_dense()
    torch.testing.assert_close(now, usual.detach())
    agrees(fast)


def test_averages_of_parameters_are_followed(made):
    """On a GPU PyTorch counts nothing of what `AveragedModel` writes: its end is looked for."""
    by = torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    average = torch.optim.swa_utils.AveragedModel(twin.original(made), multi_avg_fn=by)
    x = torch.randn(16, WIDTH)
    fast = refold.optimize(average.module.eval(), x, measure=False)
    with torch.no_grad():
        fast(x)
    (cache,) = twin.state_of(fast).programs[0][1].values()
    assert cache.copies and cache.stepped is None
    average.update_parameters(twin.original(made))
    assert cache.stepped == set(map(id, cache.copies))
    agrees(fast)


def test_a_failure_is_remembered_until_something_changes(fast, monkeypatch):
    ((made, _),) = twin.state_of(fast).programs
    fast.head.register_forward_hook(lambda *a: None)
    calls = []
    renew = made.namespace._refold_renew
    monkeypatch.setattr(made.namespace, "_refold_renew", lambda *a: calls.append(1) or renew(*a))
    x = torch.randn(5, WIDTH)
    with torch.no_grad():
        for _ in range(4):
            fast(x)
    assert len(calls) == 1
    assert "hooks" in refold.status(fast).reason
    fast.head._forward_hooks.clear()
    agrees(fast)
    assert len(calls) == 2


@pytest.fixture(scope="module")
def makers(made):
    found = {Net: made}
    for cls in (Tied, Listed):
        found[cls] = refold.optimize(cls(), torch.randn(16, WIDTH), measure=False)
    return found


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_change_of_structure_is_seen(makers, name):
    cls, change = STRUCTURES[name]
    fast = copy.deepcopy(makers[cls]).eval()
    twin.state_of(fast).grow = None  # test_changed.py has what is made anew
    settle(fast)
    try:
        change(fast)
        x = torch.randn(9, WIDTH)
        with torch.no_grad():
            expected = twin.original(fast)(x)
            torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
            torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
    finally:
        SETTINGS["shift"] = 0.5
        while UNDO:
            setattr(*UNDO.pop())


def test_what_forward_does_not_read_may_change(fast):
    """A check that takes the original more often would be no remedy."""
    fast.epoch, fast.notes = 3, ["anything"]
    vars(lives)["body"] = 1  # forward reads an attribute of that name, not this
    Net.created = 5
    vars(lives)["UNREAD"] = 3
    try:
        agrees(fast)
        fast.epoch += 1
        vars(lives)["body"] = 2
        agrees(fast)
    finally:
        del Net.created


@pytest.mark.parametrize("part", ["all of it", "a parameter"])
def test_what_has_no_memory_is_read_by_no_kernel(fast, part):
    """A tensor on the meta device stands, as one of the CPU does, on a device of no number."""
    moved = fast if part == "all of it" else fast.head
    state = {k: v.clone() for k, v in fast.state_dict().items()}
    moved.to("meta")
    x = torch.randn(9, WIDTH)
    with torch.no_grad():
        for given in (x, x.to("meta")):
            raised = []
            for one in (twin.original(fast), fast):
                try:
                    assert one(given).is_meta
                    raised.append(None)
                except Exception as error:
                    raised.append((type(error), str(error)))
            assert raised[0] == raised[1]
    moved.to_empty(device="cpu")
    fast.load_state_dict(state)
    agrees(fast)
    assert refold.status(fast).fast
