"""The checks before every fast call: they hold after a call, and each change alone breaks them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import refold
from refold import introspect, twin


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 6)
        self.gain = 2.0

    def forward(self, x):
        return self.fc(x) * self.gain


@dataclass
class Config:
    gain: float = 1.0


def shifted(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda y: y + by


class Net(nn.Module):
    STEP = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.shift = torch.full((6,), 0.5)
        self.register_buffer("scale", torch.full((6,), 3.0))
        self.power = 2
        self._bias, self.bound = 0.0, float("inf")
        self.sizes, self.named = [1.0, 2.0], {"a": [0.5]}
        self.config, self.act = Config(), shifted(0.5)

    def forward(self, x):
        y = (self.inner(x) + self.shift) * self.scale + self._bias + self.sizes[1]
        y = self.act(y * self.named["a"][0] * self.config.gain).clamp(max=self.bound)
        return (y * self.power + self.STEP).sum(dim=1, keepdim=True)


class OtherLinear(nn.Linear):
    pass


def _global_hook(m: nn.Module) -> None:
    m.handle = nn.modules.module.register_module_forward_hook(lambda *a: None)


CHANGES: dict[str, Callable[[Net], object]] = {
    "a setting of the model": lambda m: setattr(m, "power", 3),
    "a setting of a module inside": lambda m: setattr(m.inner, "gain", 2.5),
    "a setting of a tensor": lambda m: setattr(m, "power", torch.ones(6)),
    "a private setting": lambda m: setattr(m, "_bias", 1.0),
    "a setting that was infinite": lambda m: setattr(m, "bound", 0.1),
    "a setting of the class": lambda m: setattr(m, "STEP", 2.0),
    "an element of a list": lambda m: m.sizes.__setitem__(1, 3.0),
    "an element inside": lambda m: m.named["a"].__setitem__(0, 1.5),
    "a field of an object": lambda m: setattr(m.config, "gain", 4.0),
    "a function of other values": lambda m: setattr(m, "act", shifted(2.0)),
    "a parameter that is gone": lambda m: setattr(m.inner.fc, "bias", None),
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
    "a parameter's strides": lambda m: setattr(
        m.inner.fc.weight, "data", m.inner.fc.weight.data.as_strided((6, 8), (1, 6))
    ),
    "a parameter's sizes": lambda m: setattr(m.inner.fc.weight, "data", m.inner.fc.weight.data[:3]),
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
    with torch.no_grad():
        fast(torch.randn(5, 8))
    ((namespace, _, cache),) = twin.caches_of(fast)
    kernels = namespace._refold_kernels
    return fast, lambda: kernels.unchanged(*cache.watched) and cache.laid(*cache.tensors)


def test_nothing_has_changed():
    fast, unchanged = state()
    assert unchanged()
    with torch.no_grad():
        fast(torch.randn(3, 8))
    assert unchanged()


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_every_change_is_seen(change):
    fast, unchanged = state()
    x = torch.randn(5, 8)
    with torch.no_grad():
        change(fast)
    try:
        assert not unchanged()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                known = Net.forward(fast, x)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    fast(x)
            else:
                torch.testing.assert_close(fast(x), known)
    finally:
        if "handle" in fast.__dict__:
            fast.handle.remove()


@pytest.mark.parametrize("count", [3, 600])
def test_a_whole_tensor_among_few_or_many_is_seen(count):
    """Of many, fewer words of each are read."""
    ((namespace, _, _),) = twin.caches_of(state()[0])
    kernels = namespace._refold_kernels
    held = [torch.randn(40, 25) for _ in range(count)]
    contents = tuple(n for t in held for n in (t.data_ptr(), t.numel() * 4))

    def memory():
        return kernels.watch((), (), (), (), (), contents, 0)

    def unchanged(now):
        return kernels.unchanged((), (), (), (), (), contents, (), (), now)

    before = memory()
    assert unchanged(before)
    for at in (0, count // 2, count - 1):
        held[at].data.mul_(1.5)
        now = memory()
        assert not unchanged(before) and unchanged(now)
        assert kernels.differing(before, now) == tuple(i == at for i in range(count))
        before = now


@pytest.mark.parametrize("count", [1024, 1025, 1027, 5001])
def test_a_tensor_of_any_length_is_seen_whole_at_once_and_its_end_by_the_audit(count):
    """Words are read in pairs, of which an odd number of 16 bits leaves a rest."""
    ((namespace, _, _),) = twin.caches_of(state()[0])
    kernels = namespace._refold_kernels
    held = torch.randn(count).half()
    contents = (held.data_ptr(), held.numel() * 2)
    given = ((), (), (), (), (), contents)
    memory = kernels.watch(*given, 64)
    assert kernels.unchanged(*given, (), (), memory)
    held.numpy()[:] += 1
    assert not kernels.unchanged(*given, (), (), memory)
    memory = kernels.watch(*given, 64)
    held.numpy()[-1] += 1
    assert not kernels.unchanged(*given, (), (), memory)


def test_what_is_watched_is_checked_for_its_kind():
    fast, _ = state()
    ((namespace, _, cache),) = twin.caches_of(fast)
    kernels, good = namespace._refold_kernels, cache.watched
    with pytest.raises(TypeError, match="expected 9 arguments"):
        kernels.unchanged(())
    with pytest.raises(TypeError, match="argument 7 is a list"):
        kernels.unchanged(*good[:7], [], good[8])
    with pytest.raises(TypeError, match="not one that `watch` gave"):
        kernels.unchanged(*good[:8], b"")
    with pytest.raises(TypeError, match=r"a row of dicts is \(dict"):
        kernels.watch((1,), (), (), (), (), (), 1)
    with pytest.raises(TypeError, match="a row of types is a type"):
        kernels.watch((), (1,), (), (), (), (), 1)


class Subclass(torch.Tensor):
    """A tensor that may mean anything by an operation."""


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, operation, kinds, args=(), kwargs=None):
        return operation(*args, **(kwargs or {}))


class Watched(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def under(context: Callable[[], AbstractContextManager[object]]) -> Callable[..., object]:
    def call(prepare: Callable[..., object], x: torch.Tensor) -> object:
        with context():
            return prepare(x)

    return call


def under_transform(prepare: Callable[..., object], x: torch.Tensor) -> object:
    found: list[object] = []
    torch.vmap(lambda v: found.append(prepare(x)) or v)(torch.randn(2))
    return found[0]


def traced(prepare: Callable[..., object], x: torch.Tensor) -> object:
    found: list[object] = []
    torch.jit.trace(lambda v: found.append(prepare(x)) or v + 1, (x,))
    return found[0]


# calls of the guards with an x like that of the call before, but for one thing
UNLIKE: dict[str, tuple[Callable[..., object], str]] = {
    "dtype": (lambda prepare, x: prepare(x.double()), "float64"),
    "rank": (lambda prepare, x: prepare(x[None]), "shape"),
    "size": (lambda prepare, x: prepare(x[:, :7]), "shape"),
    "layout": (lambda prepare, x: prepare(x.to_sparse()), "dense"),
    "a negated view": (lambda prepare, x: prepare(torch._neg_view(x)), "dense"),
    "a subclass": (lambda prepare, x: prepare(x.as_subclass(Subclass)), "dense"),
    "a parameter": (lambda prepare, x: prepare(nn.Parameter(x)), "dense"),
    "no tensor": (lambda prepare, x: prepare(x.tolist()), "dense"),
    "device": (lambda prepare, x: prepare(x.to("meta")), "meta"),
    "an argument": (lambda prepare, x: prepare(x, 3.0), "scale is not its default"),
    "autocast": (under(lambda: torch.autocast("cpu")), "autocast"),
    "a function mode": (under(Watched), "mode"),
    "another default device": (under(lambda: torch.device("meta")), "mode"),
    "a dispatch mode": (under(Dispatched), "mode"),
    "forward-mode differentiation": (under(forward_ad.dual_level), "forward-mode"),
    "gradients": (under(torch.enable_grad), "gradients"),
    "a transform": (under_transform, "transform"),
    "a trace": (traced, "tracer"),
}


class Scaled(nn.Linear):
    def forward(self, x, scale=2.0):
        return (super().forward(x) * scale).sum(-1)


def prepared() -> tuple[nn.Module, ModuleType, Callable[..., object]]:
    fast = refold.optimize(Scaled(8, 6).eval(), torch.randn(4, 8), measure=False)
    ((made, caches),) = twin.state_of(fast).programs
    prepare, (mode,) = made.namespace._refold_prepare, made.namespace._refold_file.modes
    return fast, made.namespace, lambda x, scale=2.0: prepare(fast, caches, mode, x, scale)


@pytest.mark.parametrize("name", UNLIKE)
def test_a_call_unlike_the_last_is_examined(name):
    _, module, prepare = prepared()
    call, reason = UNLIKE[name]
    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(2):
            assert type(prepare(x)) is module._RefoldCache
        found = call(prepare, x)
        assert isinstance(found, str), "the fast forward would be taken"
        assert reason in found
        assert type(prepare(x)) is module._RefoldCache


def test_only_calls_like_the_last_are_not_examined(monkeypatch):
    fast, module, _ = prepared()
    examined: list[torch.Tensor] = []
    like = module._refold_like
    monkeypatch.setattr(  # of the argument, not of the parameters
        module, "_refold_like", lambda *t: (len(t) == 1 and examined.append(t[0])) or like(*t)
    )
    x, longer = torch.randn(5, 8), torch.randn(9, 8)
    with torch.no_grad():
        for call in (x, x.clone(), longer, longer, longer.mT.contiguous().mT, x):
            fast(call)
        assert [id(e) for e in examined[:2]] == [id(x), id(longer)]
        assert len(examined) == 4
        fast.weight.mul_(2)
        fast(x)
    assert len(examined) == 5, "a parameter changed"


def test_a_weight_that_was_turned_where_it_lies_is_followed():
    """No version counts it, and its address and sizes are the same."""
    module = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())
    fast, x = refold.optimize(module, torch.randn(4, 8), measure=False), torch.randn(5, 8)
    with torch.no_grad():
        before = fast(x)
        fast[0].weight.data = fast[0].weight.data.t()
        assert introspect.fallback_reason(fast, [x]) is None
        turned = torch.sigmoid(nn.functional.linear(x, fast[0].weight, fast[0].bias))
        torch.testing.assert_close(fast(x), turned)
        assert not torch.allclose(before, turned)


class MakesTensors(nn.Linear):
    def forward(self, x):
        return super().forward(x) * torch.tensor([0.5, 2.0]) + torch.ones(2)


def test_tensors_that_forward_makes_have_the_default_dtype():
    module, x = MakesTensors(8, 2), torch.randn(5, 8)
    fast = refold.optimize(module, x, measure=False)
    try:
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            torch.set_default_dtype(torch.float64)
            assert "default dtype" in introspect.fallback_reason(fast, [x])
            assert fast(x).dtype == module(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


HELD = torch.ones(2)


def test_a_tensor_that_others_may_write_is_not_written_out():
    class Reads(nn.Linear):
        def forward(self, x):
            return super().forward(x) * HELD[0] + HELD.sum()

    class ReadsNumber(nn.Linear):
        def forward(self, x):
            return super().forward(x) * self.held[0]

    module, x = Reads(8, 2), torch.randn(5, 8)
    with pytest.warns(UserWarning, match="neither arguments nor attributes"):
        assert refold.optimize(module, x, measure=False) is module
    (number := ReadsNumber(8, 2)).held = [torch.tensor(2.0)]
    fast = refold.optimize(number, x, measure=False)  # what a module's own list holds is read
    writes = (lambda: number.held[0].fill_(3.0), lambda: setattr(number, "held", [torch.ones(())]))
    for write in (lambda: None, *writes):
        write()
        with torch.no_grad():
            torch.testing.assert_close(fast(x), number(x))


@pytest.mark.parametrize("default", ["cpu", "cpu:0"])
def test_the_default_device_may_be_the_arguments(default):
    fast, module, prepare = prepared()
    x = torch.randn(5, 8)
    with torch.no_grad(), torch.device(default):
        for _ in range(2):
            assert type(prepare(x)) is module._RefoldCache
            torch.testing.assert_close(fast(x), Scaled.forward(fast, x))
        made = refold.optimize(Scaled(8, 6).eval(), x, measure=False)
        assert introspect.fallback_reason(made, [x]) is None


def test_without_pytorchs_comparison_every_call_is_examined(monkeypatch):
    fast, module, _ = prepared()
    monkeypatch.setattr(module, "_refold_tensor_guards", None)
    with torch.no_grad():
        for rows in (5, 5, 9):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), Scaled.forward(fast, x))
    ((_, _, cache),) = twin.caches_of(fast)
    assert not cache.fits(x)


WITHOUT = """
import copy, torch, refold
from refold import introspect

for name in ("_torchinductor_pyobject_tensor_data_ptr", "_empty_strided_cpu", "TensorGuards"):
    delattr(torch._C._dynamo.guards, name)
module, x = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6)), torch.randn(50, 8)
fast, module = refold.optimize(module, x, measure=False), copy.deepcopy(module)
with torch.no_grad():
    for training in (True, True, False, False):
        fast.train(training), module.train(training)
        assert introspect.fallback_reason(fast, [x]) is None
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
"""


def test_a_pytorch_without_these_functions_will_do():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)
