"""Writes that only a GPU's memory shows, on the emulator: followed one call late, and told."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch
from torch import nn

import refold
from emulator.module import emulated
from lives import at_once
from refold import pipeline, twin
from refold.derive import Options
from refold.runtime.look import _refold_words


class Summed(nn.Module):
    """Its fold is read by a kernel of rows, which looks in passing."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 64)

    def forward(self, x):
        return self.fc(x).sum(dim=1, keepdim=True)


class Pooled(nn.Module):
    """Its pooled weight is read by a product, before which a kernel of its own looks."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(96, 64)

    def forward(self, x):
        return torch.sigmoid(nn.functional.avg_pool1d(self.fc(x)[:, None], 4)[:, 0])


class Held(nn.Module):
    """Its folds are read by a kernel that holds rows, of few of which most threads have none."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 64)  # the names of the others' parameters
        self.fc.weight = nn.Parameter(torch.randn(512))
        self.fc.bias = nn.Parameter(torch.randn(512))
        self.gain = nn.Parameter(torch.randn(512))

    def forward(self, x):
        shift = torch.tanh(self.gain) * torch.exp(self.fc.bias)
        return torch.softmax(x * torch.exp(self.fc.weight) + shift, -1)


class Convolved(nn.Module):
    """Its fold is read by PyTorch's convolution, and no kernel of ours runs."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(3, 8, 5, padding=2)
        self.gain = nn.Parameter(torch.rand(8, 1, 1) + 0.5)

    def forward(self, x):
        return nn.functional.avg_pool2d(self.fc(x), 2) * self.gain


class Modes(nn.Module):
    """Each of its modes has a fold of the same parameters."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 64)

    def forward(self, x):
        return self.fc(x).sum(dim=1, keepdim=True) * (3 if self.training else 2)


EXAMPLES = {Convolved: (3, 12, 12)}
MODELS = {"rows": Summed, "product": Pooled, "held": Held, "none of ours": Convolved}


def example(module: nn.Module, rows: int) -> torch.Tensor:
    shape = next((s for m, s in EXAMPLES.items() if isinstance(module, m)), None)
    return torch.randn(rows, *(shape or (module.fc.in_features,)))


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def fast(request):
    torch.manual_seed(0)
    module = request.param().eval()
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    x = example(module, 64)
    result = pipeline.run(
        module, [x], "", "x", target, device, Options(measure=False, accuracy=False)
    )
    assert result.text is not None
    assert ("look_alone(rf_stream, rf_device)" in result.text) == isinstance(module, Convolved)
    return pipeline.bind_for_class(emulated(result.text), module)


def looked(parameter: torch.Tensor) -> list[int]:
    """Some of the elements that are looked at, the first and the last among them."""
    found = _refold_words(parameter)
    assert found is not None
    return [min(found[1]), max(found[1]), found[1][7]]


@pytest.mark.parametrize("rows", [2, 64])
def test_a_write_is_followed_one_call_late_and_told(fast, rows, monkeypatch, caplog):
    """Of few rows most threads of a block have none; they look all the same."""
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    fast.refold_refresh()
    x, original = example(fast, rows), twin.original(fast)

    def right():
        torch.testing.assert_close(fast(x), original(x), rtol=1e-3, atol=1e-3)

    with torch.no_grad():
        for _ in range(3):
            right()
        for write in (
            lambda: fast.fc.weight.data.mul_(1.5),
            lambda: fast.fc.weight.data.copy_(torch.randn_like(fast.fc.weight)),
            lambda: fast.fc.weight.data.mul_(0.5),
            lambda: fast.fc.bias.data[looked(fast.fc.bias)[0]].add_(9.0),
            lambda: getattr(fast, "gain", fast.fc.bias).data.add_(1.0),
            *(
                lambda i=i: fast.fc.weight.data.view(-1)[i].add_(9.0)
                for i in looked(fast.fc.weight)
            ),
        ):
            caplog.clear()
            write()
            fast(x)  # computed from the old values
            assert not caplog.records
            right()
            (record,) = caplog.records
            assert record.levelno == logging.ERROR and "does not count" in record.getMessage()
            caplog.clear()
            right()
            assert not caplog.records, "told once"
        fast.fc.weight.mul_(2)  # counted: at once
        right()
        fast.fc.weight.data = torch.randn_like(fast.fc.weight)  # another storage: at once
        right()
        assert not caplog.records


@contextlib.contextmanager
def autocast():
    """Of a GPU, and of the CPU, on which the emulator's tensors lie."""
    kinds = ("cuda", "cpu")
    try:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, False)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize(
    ("within", "why"), [(torch.enable_grad, "gradients are"), (autocast, "autocast is")]
)
def test_a_call_of_the_original_looks_too(fast, calls, within, why, monkeypatch):
    """A write before calls that take the original is followed by the first fast call behind."""
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    fast.refold_refresh()
    x, original = example(fast, 8), twin.original(fast)
    before = {name: value.clone() for name, value in fast.state_dict().items()}
    with torch.no_grad():
        for write in (lambda: fast.fc.weight.data.mul_(1.5), lambda: fast.fc.bias.data.add_(2.0)):
            fast(x)
            write()
            for _ in range(calls):
                with within():
                    fast(x)
                assert why in (refold.status(fast).reason or "")
            torch.testing.assert_close(fast(x), original(x), rtol=1e-3, atol=1e-3)
    fast.load_state_dict(before)


@pytest.mark.parametrize("meanwhile", [True, False])
def test_a_write_is_followed_beside_a_change_that_is_seen(fast, meanwhile, monkeypatch, caplog):
    """All is looked at anew then; what a kernel has seen before, or would see now, is kept."""
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    fast.refold_refresh()
    x, original = example(fast, 8), twin.original(fast)

    def right():
        torch.testing.assert_close(fast(x), original(x), rtol=1e-3, atol=1e-3)

    def other_mode():
        fast.train(not fast.training)

    def other_parameter():
        fast.fc.bias.add_(0.5)

    def step():
        fast.fc.bias.grad = torch.ones_like(fast.fc.bias)
        torch.optim.SGD([fast.fc.bias], 0.1).step()

    with torch.no_grad():
        for change in (other_mode, other_parameter, step, other_mode):
            right()
            caplog.clear()
            fast.fc.weight.data.mul_(1.5)
            if meanwhile:
                fast(x)  # computed from the old values; its kernel sees the write
            change()
            if not meanwhile:
                fast(x)
            right()
            (record,) = caplog.records
            assert "does not count" in record.getMessage()
            right()
    fast.eval()


def test_what_one_mode_has_seen_the_others_know(monkeypatch, caplog):
    """A write that is followed in a mode is followed in each that is called behind it."""
    torch.manual_seed(0)
    module, x = Modes().eval(), torch.randn(8, 512)
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(module, [x], "", "x", target, device, options)
    fast = pipeline.bind_for_class(emulated(result.text), module)
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    fast.refold_refresh()
    original = twin.original(fast)

    def right():
        torch.testing.assert_close(fast(x), original(x), rtol=1e-3, atol=1e-3)

    with torch.no_grad(), at_once(fast):
        for training in (True, False, True):
            for mode in (True, False, True, False):  # the first of a mode puts others in doubt
                fast.train(mode)
                right()
            fast.train(training)
            caplog.clear()
            fast.fc.weight.data.mul_(1.5)
            fast(x)  # computed from the old values
            right()
            assert len(caplog.records) == 1
            fast.train(not training)
            right()
            fast.train(training)
            right()
            assert len(caplog.records) == 1, "told once"
        for training in (True, False):  # what one computes anew in doubt, it tells the other of
            for first in (1.5, 0.5):
                fast.train(training)
                right()
                fast.fc.weight.data.mul_(first)
                fast(x)  # computed from the old values
                fast.train(not training)
                fast(x)
                right()
                fast.train(training)
                right()
                caplog.clear()
                fast.fc.weight.data.mul_(1.25)
                fast.train(not training)
                right()
                right()
                fast.train(training)
                right()
                assert not caplog.records, "no result was computed from old values"
                right()
        for training in (True, False):  # and what was written while the original ran
            fast.train(not training)
            right()
            fast.train(training)
            right()
            hook = fast.fc.register_forward_hook(lambda *given: None)
            right()
            fast.fc.weight.data.mul_(1.25)
            right()
            hook.remove()
            right()
            right()
            caplog.clear()
            fast.train(not training)
            right()
            right()


def test_a_call_of_the_original_looks_while_there_is_doubt(monkeypatch, caplog):
    """Behind the first call of another mode all is computed anew, and anew by the call behind; a
    write between these two, and a call of the original, hides nothing."""
    torch.manual_seed(0)
    module, x = Modes().eval(), torch.randn(8, 512)
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(module, [x], "", "x", target, device, options)
    fast = pipeline.bind_for_class(emulated(result.text), module)
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    fast.refold_refresh()
    original = twin.original(fast)

    def right():
        torch.testing.assert_close(fast(x), original(x), rtol=1e-3, atol=1e-3)

    with torch.no_grad(), at_once(fast):
        for training in (False, True, False):  # the first call of a mode puts the other in doubt
            fast.train(training)
            right()
        (cache,) = (c for _, mode, c in twin.caches_of(fast) if mode == "eval")
        assert cache.doubt == 2
        fast.fc.weight.data.mul_(1.5)
        with autocast():
            fast(x)
        right()
        late = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert not late, "no result was computed from old values"


def test_what_one_program_has_seen_the_others_know(monkeypatch, caplog):
    """A twin has programs for several forms of calls, each with folds of its own."""
    torch.manual_seed(0)
    module, x = Summed().eval(), torch.randn(8, 512)
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(module, [x], "", "x", target, device, options)
    fast = pipeline.bind_for_class(emulated(result.text), module)
    (namespace,) = twin.namespaces(fast)
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    original, state = twin.original(fast), twin.state_of(fast)
    ((made, _),) = state.programs
    folded = [twin.Caches(state), twin.Caches(state)]

    def called(program: int):
        state.programs = [(made, folded[program]), (made, folded[1 - program])]
        return fast(x)

    def right(program: int):
        torch.testing.assert_close(called(program), original(x), rtol=1e-3, atol=1e-3)

    with torch.no_grad():
        right(0)
        fast.fc.weight.data.mul_(1.5)
        right(1)  # by the first call of all
        right(0)
        for first, other in ((0, 1), (1, 0)):
            right(first)
            right(other)
            fast.fc.weight.data.mul_(1.5)
            called(first)  # computed from the old values
            right(first)
            right(other)


def test_doubt_waits_while_a_cuda_graph_is_captured(monkeypatch):
    """Nothing may be copied to the device then: two modes are called, and then both captured."""
    torch.manual_seed(0)
    module, x = Modes().eval(), torch.randn(8, 512)
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(module, [x], "", "x", target, device, options)
    fast = pipeline.bind_for_class(emulated(result.text), module)
    (namespace,) = twin.namespaces(fast)
    renew, renewed = namespace._refold_renew, []
    monkeypatch.setattr(namespace, "_refold_is_readable", lambda device: False)
    monkeypatch.setattr(
        namespace, "_refold_renew", lambda *given: renewed.append(1) or renew(*given)
    )
    with torch.no_grad():
        for mode in (True, False):
            fast.train(mode)(x)
        before, captured = len(renewed), []
        monkeypatch.setattr(namespace, "_refold_captures", lambda device: True)
        for mode in (True, False):
            captured.append(fast.train(mode)(x))
        assert len(renewed) == before
        monkeypatch.setattr(namespace, "_refold_captures", lambda device: False)
        assert torch.equal(fast.train(True)(x), captured[0])
        assert len(renewed) > before
