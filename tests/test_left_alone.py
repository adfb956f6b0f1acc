"""What a module is, and how it is called, is the same before and behind `refold.optimize`."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import config

import refold
from refold.capture import CaptureError, capture, kept


class Remembers(nn.Module):
    """A state that begins as None, a log and a count, as recurrent modules have them."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.state: torch.Tensor | None = None
        self.log: list[int] = []
        self.last: dict[str, torch.Tensor] = {}
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.state is None:
            self.state = torch.zeros(x.shape[0], 6)
        self.state = self.cell(x, self.state)
        self.log.append(x.shape[0])
        self.last["x"] = x
        self.count += 1
        return self.state * 2


@pytest.mark.filterwarnings("ignore:refold. the original")
@pytest.mark.parametrize("training", [False, True])
def test_what_forward_sets_is_not_set_by_optimize(training: bool) -> None:
    torch.manual_seed(0)
    model = Remembers().eval()
    eager = copy.deepcopy(model)
    fast = refold.optimize(model, torch.randn(3, 4), measure=False, training=training)
    assert (model.state, model.log, model.last, model.count) == (None, [], {}, 0)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3, 4)
            torch.testing.assert_close(fast(x), eager(x))
    assert (fast.log, fast.count) == ([3, 3, 3], 3)


def test_buffers_that_forward_replaces_are_put_back() -> None:
    model = nn.BatchNorm1d(4)
    mean = model.running_mean
    assert mean is not None
    version = mean._version
    with kept(model):
        model.running_mean = mean + 1
        model.extra = 3
        del model.eps
    assert model.running_mean is mean
    assert mean._version == version
    assert not hasattr(model, "extra")
    assert model.eps == 1e-5


class Shifted(nn.Module):
    """Does something of its own around forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 2

    def __call__(self, x: torch.Tensor, *more: Any) -> Any:
        return super().__call__(x + 1, *more)


def test_what_a_class_does_around_forward_is_done_once() -> None:
    torch.manual_seed(0)
    model = Shifted().eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        eager, alone = model(x), model.forward(x)
        fast = refold.optimize(model, x, measure=False)
        torch.testing.assert_close(fast(x), eager)
        torch.testing.assert_close(fast.forward(x), alone)
    assert refold.status(fast).fast


def test_a_hook_that_was_there_before_acts_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    hook = model.register_forward_hook(lambda module, given, result: result * 3)
    x = torch.randn(3, 4)
    with torch.no_grad():
        eager = model(x)
        fast = refold.optimize(model, x, measure=False)
        torch.testing.assert_close(fast(x), eager)
        hook.remove()
        torch.testing.assert_close(fast(x) * 3, eager)


def _hook(part: nn.Module) -> Any:
    return part.register_forward_hook(lambda module, given, result: result * 3).remove


def _hook_before(part: nn.Module) -> Any:
    return part.register_forward_pre_hook(lambda module, given: (given[0] * 3,)).remove


def _global_hook(part: nn.Module) -> Any:
    def act(module: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor | None:
        return result * 3 if isinstance(module, type(part)) else None

    return nn.modules.module.register_module_forward_hook(act).remove


def _own_forward(part: nn.Module) -> Any:
    forward = part.forward
    part.forward = lambda x: forward(x) * 3
    return lambda: delattr(part, "forward")


@pytest.mark.parametrize("add", [_hook, _hook_before, _global_hook, _own_forward])
def test_what_acts_around_a_part_may_go(add: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        plain = model(x)
        remove = add(model[0])
        around = model(x)
        fast = refold.optimize(model, x, measure=False)
        torch.testing.assert_close(fast(x), around)
        remove()
        torch.testing.assert_close(fast(x), plain)
    # a forward of its own counts as a setting that has changed
    assert refold.status(fast).fast or add is _own_forward


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("every", [False, True])
def test_a_users_hook_sees_no_tensor_of_optimize(every: bool, images: bool) -> None:
    """Nor where eager is asked how its results lie."""
    part = nn.Conv2d(4, 4, 3) if images else nn.Linear(4, 4)
    model = nn.Sequential(part, nn.ReLU()).eval()
    seen: list[torch.Tensor] = []
    add = nn.modules.module.register_module_forward_hook if every else part.register_forward_hook
    handle = add(lambda module, given, result: seen.append(result))
    try:
        refold.optimize(
            model, torch.randn(3, 4, 8, 8) if images else torch.randn(3, 4), measure=False
        )
    finally:
        handle.remove()
    assert not seen


NOTED: set[tuple[bool, bool]] = set()


class Notes(nn.Module):
    """It notes what a capture switches off for as long as it takes."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        NOTED.add((gc.isenabled(), getattr(config, "do_not_emit_stack_traces", True)))
        if self.fails:
            raise NotImplementedError
        return x * 2


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("collects", [False, True])
def test_what_a_capture_does_without_is_there_again(collects: bool, fails: bool) -> None:
    """It collects no garbage and does not note where nodes were made: a quarter of its time."""
    NOTED.clear()
    before = vars(config).copy()
    try:
        if not collects:
            gc.disable()
        if fails:
            with pytest.raises(CaptureError):
                capture(Notes(fails), [torch.randn(2, 3)], training=False)
        else:
            capture(Notes(), [torch.randn(2, 3)], training=False)
        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert {(False, True)} == NOTED
    assert vars(config) == before


def test_hooks_of_all_modules_that_a_capture_leaves_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.export of PyTorch 2.11 leaves one where it fails: it saw every buffer of the process
    that was assigned later, and graphs of such a module were not compiled one by one."""
    hooks: Any = vars(nn.modules.module)["_global_buffer_registration_hooks"]
    export, own = torch.export.export, lambda *_: None

    def leaves(*args: Any, **kwargs: Any) -> Any:
        nn.modules.module.register_module_buffer_registration_hook(lambda *_: None)
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", leaves)
    handle = nn.modules.module.register_module_buffer_registration_hook(own)
    try:
        with pytest.raises(CaptureError):
            capture(Notes(fails=True), [torch.randn(2, 3)], training=False)
        assert list(hooks.values()) == [own]
    finally:
        handle.remove()
    assert not hooks


class _Spread(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.var(-1, keepdim=True) * 2 + torch.tanh(x).sum(-1, keepdim=True)


def test_only_the_users_own_calls_warn() -> None:
    """The variance of one column has no degree of freedom, and PyTorch warns of it."""
    model = _Spread().eval()
    with warnings.catch_warnings(record=True) as at_once, torch.no_grad():
        warnings.simplefilter("always")
        fast = refold.optimize(model, torch.randn(8, 1), measure=False)
    assert not [w for w in at_once if "degrees" in str(w.message)]
    with warnings.catch_warnings(record=True) as later, torch.no_grad():
        warnings.simplefilter("always")
        assert fast(torch.randn(4, 1)).isnan().all()
        fast(torch.randn(4, 1, 1))  # another form, which gets kernels here
    assert len([w for w in later if "degrees" in str(w.message)]) <= 2
