"""What forward reads is followed wherever it is held: each way to hold x each way to change it."""

from __future__ import annotations

import functools
import types

import pytest
import torch

import refold
from holders import ARGUMENTS, HOLDERS, WAYS, WIDTH, Body, Cached
from refold import pipeline, twin
from refold.capture import CaptureError, capture
from refold.emit.load import load_text

VALUES = {"tensor": lambda: torch.linspace(0.5, 2.0, WIDTH), "number": lambda: 2.0}
CASES = [(name, kind) for name, row in HOLDERS.items() for kind in row.takes]
FORMS = ("module", "file", "backend")


def fast_of(module, form):
    x = torch.randn(8, WIDTH)
    if form == "backend":
        torch._dynamo.reset()
        return torch.compile(module, backend="refold", options={"measure": False})
    fast = refold.optimize(module, x, measure=False)
    if form == "file" and twin.is_twin(fast) and twin.state_of(fast).graphs is None:
        namespace = load_text(fast.refold_source, {"Model": type(module)}, keep=False)
        return pipeline.adopt(namespace.ModelNew, module)
    return fast


def agrees(fast, module):
    x = torch.randn(8, WIDTH)
    with torch.no_grad():
        expected = module(x)
        for _ in range(2):
            torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "kind"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
def test_what_is_held_is_followed(name, kind, form, monkeypatch):
    row, value = HOLDERS[name], VALUES[kind]
    module = row.made(value())
    if form == "backend" and name == "a default" and torch.__version__.startswith("2.11."):
        x = torch.randn(8, WIDTH)
        theirs = torch.compile(module, backend="eager")
        first = theirs(x)
        row.put(module, 3.0)
        assert torch.equal(theirs(x), first)  # Dynamo of 2.11 does not look, whatever the backend
        return
    fast = fast_of(module, form)
    agrees(fast, module)
    others = [3.0, 5, 3.0]
    if kind == "tensor":
        for change in WAYS.values():
            with torch.no_grad():
                change((row.tensor or row.held)(module))
            agrees(fast, module)
        others = [value() * 3, (value() * 5).double(), value()[:1].clone()]
    for other in others:
        row.put(module, other)
        if vars(fast) is not vars(module):  # a file's module has a dict of its own
            vars(fast).update(value=vars(module)["value"]) if "value" in vars(module) else None
            fast._buffers.update(module._buffers)
        agrees(fast, module)


@pytest.mark.parametrize("form", FORMS)
def test_a_cached_property_is_followed(form):
    """It is not there before the first call, and whoever clears it wants it computed anew."""
    module = Cached().eval().requires_grad_(False)
    fast = fast_of(module, form)
    agrees(fast, module)
    for change in WAYS.values():
        change(module.value)
        agrees(fast, module)
    for one in (module, fast) if form == "file" else (module,):
        del one.value
    agrees(fast, module)
    for one in (module, fast):
        vars(one)["value"] = torch.full((WIDTH,), 3.0)
    agrees(fast, module)
    assert form != "module" or refold.status(fast).fast


def test_what_is_held_costs_no_fast_call():
    """What is followed is fast until it changes; what forward does not read may change."""
    for name in ("a dataclass", "a global object", "parsed arguments", "a helper's property"):
        module = HOLDERS[name].made(2.0)
        fast = fast_of(module, "module")
        agrees(fast, module)
        ARGUMENTS.epoch += 1
        module.epoch = 3
        agrees(fast, module)
        assert refold.status(fast).fast, (name, refold.status(fast).reason)


class Outside(Body):
    """Fills a cache that is not its own at the first call."""

    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    def held(self):
        return self.cache(WIDTH)


def _dict():
    known = {}

    def cache(n):
        if n not in known:
            known[n] = torch.linspace(0.5, 2.0, n)
        return known[n]

    return cache


def _lru():
    return functools.lru_cache(lambda n: torch.linspace(0.5, 2.0, n))


class _Helper:
    kept = None

    def __call__(self, n):
        if self.kept is None:
            self.kept = torch.linspace(0.5, 2.0, n)
        return self.kept


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("make", [_dict, _lru, _Helper])
def test_a_cache_outside_of_the_module_holds_no_tensor_of_a_trace(make):
    module = Outside(make()).eval().requires_grad_(False)
    with pytest.raises(CaptureError, match="forward fills"):
        capture(module, [torch.randn(8, WIDTH)], training=False)
    agrees(module, module)
    assert type(module.held()) is torch.Tensor and not torch._is_functional_tensor(module.held())
    fresh = Outside(make()).eval().requires_grad_(False)
    agrees(fast_of(fresh, "module"), fresh)


def test_numbers_of_tensors_that_are_held_are_seen():
    module = HOLDERS["a tensor's number"].made(torch.ones(WIDTH))
    with pytest.raises(CaptureError, match="values as Python numbers"):
        capture(module, [torch.randn(8, WIDTH)], training=False)


NOTHINGS = {
    "an attribute": lambda m, value: setattr(m, "table", value),
    "an entry of a list": lambda m, value: m.listed.__setitem__(0, value),
    "an entry of a dict": lambda m, value: m.named.__setitem__("table", value),
    "a field": lambda m, value: setattr(m.fields, "table", value),
}


class MaybeScaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.table, self.listed, self.named = None, [None], {"table": None}
        self.fields = types.SimpleNamespace(table=None)

    def forward(self, x):
        y = torch.sigmoid(self.fc(x))
        held = self.table, self.listed[0], self.named["table"], self.fields.table
        for table in held:
            y = y if table is None else y * table
        return y.sum(1)


@pytest.mark.parametrize("put", NOTHINGS.values(), ids=NOTHINGS)
def test_a_tensor_where_nothing_was_is_followed(put):
    """Of a tensor among settings nothing is said, and of none that it is none."""
    module = MaybeScaled().eval()
    fast = refold.optimize(module, torch.randn(8, WIDTH), measure=False)
    agrees(fast, module)
    for value in (VALUES["tensor"](), None, 3.0, None, VALUES["tensor"]() * 2):
        put(module, value)
        agrees(fast, module)
