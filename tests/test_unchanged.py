"""The one check before every fast call: it holds after a call, and each change alone breaks it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

import refold


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 6)
        self.gain = 2.0

    def forward(self, x):
        return self.fc(x) * self.gain


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.shift = torch.full((6,), 0.5)
        self.register_buffer("scale", torch.full((6,), 3.0))
        self.power = 2

    def forward(self, x):
        y = (self.inner(x) + self.shift) * self.scale
        return (y * self.power).sum(dim=1, keepdim=True)


class OtherLinear(nn.Linear):
    pass


def _global_hook(m: nn.Module) -> None:
    m.handle = nn.modules.module.register_module_forward_hook(lambda *a: None)


CHANGES: dict[str, Callable[[Net], object]] = {
    "a setting of the model": lambda m: setattr(m, "power", 3),
    "a setting of a module inside": lambda m: setattr(m.inner, "gain", 2.5),
    "a module replaced": lambda m: setattr(m.inner, "fc", nn.Linear(8, 6)),
    "a module's class": lambda m: setattr(m.inner.fc, "__class__", OtherLinear),
    "a module's mode": lambda m: m.inner.fc.eval() if m.training else m.inner.fc.train(),
    "a hook": lambda m: m.inner.fc.register_forward_hook(lambda *a: None),
    "a hook before": lambda m: m.inner.register_forward_pre_hook(lambda *a: None),
    "a global hook": _global_hook,
    "a forward of its own": lambda m: setattr(m.inner, "forward", lambda x: x[:, :6]),
    "a parameter replaced": lambda m: setattr(m.inner.fc, "weight", nn.Parameter(torch.ones(6, 8))),
    "a parameter written": lambda m: m.inner.fc.weight.data_ptr() and m.inner.fc.weight.mul_(2),
    "a parameter's memory": lambda m: setattr(m.inner.fc.bias, "data", torch.zeros(6)),
    "a buffer written": lambda m: m.scale.add_(1),
    "a buffer replaced": lambda m: setattr(m, "scale", torch.ones(6)),
    "an attribute replaced": lambda m: setattr(m, "shift", torch.ones(6)),
    "an attribute written": lambda m: m.shift.zero_(),
    "a parameter hidden by an attribute": lambda m: m.__dict__.__setitem__("scale", torch.ones(6)),
    "its dictionary of parameters": lambda m: setattr(
        m.inner.fc, "_parameters", {k: p * 2 for k, p in m.inner.fc._parameters.items()}
    ),
}


def state() -> tuple[Net, Callable[[], bool]]:
    torch.manual_seed(0)
    fast = refold.optimize(Net(), torch.randn(4, 8), measure=False)
    kernels = sys.modules[type(fast).__module__]._refold_kernels
    with torch.no_grad():
        fast(torch.randn(5, 8))
    (cache,) = fast._refold_caches.values()
    return fast, lambda: kernels.unchanged(*cache.stamp)


def test_nothing_has_changed():
    fast, unchanged = state()
    assert unchanged()
    with torch.no_grad():
        fast(torch.randn(3, 8))
    assert unchanged()


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_every_change_is_seen(change):
    fast, unchanged = state()
    with torch.no_grad():
        change(fast)
    try:
        assert not unchanged()
    finally:
        if "handle" in fast.__dict__:
            fast.handle.remove()


def test_a_stamp_is_four_tuples():
    fast, _ = state()
    kernels = sys.modules[type(fast).__module__]._refold_kernels
    with pytest.raises(TypeError, match="four tuples"):
        kernels.unchanged((), (), (), [])
    with pytest.raises(TypeError, match="expected 4 arguments"):
        kernels.unchanged(())
