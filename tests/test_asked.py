"""What forward asks for, though it is not there yet, or finds by a text: seen once it is there."""

from __future__ import annotations

import functools
import itertools
import operator
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import refold
from refold import introspect
from refold.capture import outside

SCALE = 2.0
MODULE = types.ModuleType("refold_tests_asked")
sys.modules[MODULE.__name__] = MODULE


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.begin()

    def begin(self) -> None:
        """What a case sets when it is made."""

    def forward(self, x):
        return self.then(self.linear(x))


def module_of(then: Callable[..., Any], begin: Any = None, **names: Any) -> nn.Module:
    torch.manual_seed(0)
    names |= {"then": then} | ({"begin": begin} if begin else {})
    return type("Asking", (Body,), names)().eval()


def agrees(fast: nn.Module, module: nn.Module) -> None:
    x = torch.randn(5, 8)
    with torch.no_grad():
        expected = module(x)
        for _ in range(3):
            torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)


def _tried(self, x):
    try:
        return x * self.scale
    except AttributeError:
        return x


class Described:
    def __get__(self, held, kind=None):
        return 2.0 if held is None else held.__dict__.get("_described", 2.0)

    def __set__(self, held, value):
        held.__dict__["_described"] = value


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda m: setattr(m, name, value)


def _globally(m: Any) -> None:
    globals()["SCALE"] = 3.0


def _doubled(x: Any) -> Any:
    return x * SCALE  # type: ignore[name-defined]


def _elsewhere(m: Any) -> None:
    MODULE.scale = 3.0  # type: ignore[attr-defined]


def _times(factor: float) -> Callable[[Any], Any]:
    return lambda x: x * factor


def _static(factor: float) -> Callable[[Any], None]:
    return lambda m: setattr(type(m), "act", staticmethod(_times(factor)))


class Wrapper:
    """Stands for a function, and is called as it is."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        functools.update_wrapper(self, function)
        self.gain = 1.0

    def __call__(self, x: Any) -> Any:
        return self.__wrapped__(x) * self.gain  # type: ignore[attr-defined]


def _listed(m: Any, x: Any) -> Any:
    return x * sum(value for name, value in vars(m).items() if name.startswith("scale"))


# what forward does, what changes what it asks for, what is set when the module is made
ASKED: dict[str, tuple[Any, ...]] = {
    "hasattr": (lambda m, x: x * m.scale if hasattr(m, "scale") else x, _set("scale", 3.0)),
    "getattr": (lambda m, x: x * getattr(m, "scale", 1.0), _set("scale", 3.0)),
    "the dict": (lambda m, x: x * m.__dict__.get("scale", 1.0), _set("scale", 3.0)),
    "vars": (lambda m, x: x * vars(m).get("scale", 1.0), _set("scale", 3.0)),
    "all names": (_listed, _set("scale_b", 3.0), _set("scale_a", 2.0)),
    "a static method": (lambda m, x: m.act(x), _static(3.0), _static(2.0)),
    "what stands for a function": (
        lambda m, x: m.act(x),
        lambda m: setattr(m, "act", Wrapper(_times(3.0))),
        lambda m: setattr(m, "act", Wrapper(_times(2.0))),
    ),
    "what is beside a function": (
        lambda m, x: m.act(x),
        lambda m: setattr(m.act, "gain", 3.0),
        lambda m: setattr(m, "act", Wrapper(_times(2.0))),
    ),
    "dir": (lambda m, x: x * (2 if "scale" in dir(m) else 1), _set("scale", 3.0)),
    "an exception": (_tried, _set("scale", 3.0)),
    "a descriptor": (lambda m, x: x * m.scale, _set("scale", 3.0), None, Described()),
    "globals by text": (lambda m, x: x * globals()["SCALE"], _globally),
    "globals by a computed name": (
        lambda m, x: x * globals()["SCA" + m.which],
        _globally,
        _set("which", "LE"),
    ),
    "a function by a computed name": (
        lambda m, x: globals().get("_doub" + m.which)(x),
        _globally,
        _set("which", "led"),
    ),
    "this module by a computed name": (
        lambda m, x: x * getattr(sys.modules[__name__], "SCA" + m.which),
        _globally,
        _set("which", "LE"),
    ),
    "eval": (lambda m, x: x * eval("SCALE"), _globally),
    "eval of more than a name": (lambda m, x: x * eval("SCALE + 1"), _globally),
    "a module by text": (lambda m, x: x * __import__("refold_tests_asked").scale, _elsewhere),
    "a module that is known": (
        lambda m, x: x * sys.modules["refold_tests_asked"].scale,
        _elsewhere,
    ),
    "an item's getter": (
        lambda m, x: x * m.get({"a": 2.0, "b": 3.0}),
        _set("get", operator.itemgetter("b")),
        _set("get", operator.itemgetter("a")),
    ),
    "a method's caller": (
        lambda m, x: m.get(x),
        _set("get", operator.methodcaller("mul", 3.0)),
        _set("get", operator.methodcaller("mul", 2.0)),
    ),
    "requires_grad": (
        lambda m, x: x * 2 if m.linear.weight.requires_grad else x,
        lambda m: m.requires_grad_(False),
    ),
    "how many want gradients": (
        lambda m, x: x * sum(p.requires_grad for p in m.parameters()),
        lambda m: m.linear.bias.requires_grad_(False),
    ),
    "whether there is a gradient": (
        lambda m, x: x * 2 if m.linear.weight.grad is not None else x,
        lambda m: m.linear(torch.ones(1, 8)).sum().backward(),
    ),
}


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("name", ASKED)
def test_what_forward_asks_for_is_seen(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    monkeypatch.setattr(MODULE, "scale", 2.0, raising=False)
    then, change, begin, described, *_ = (*ASKED[name], None, None)
    module = module_of(then, begin, **({"scale": described} if described else {}))
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    agrees(fast, module)
    assert refold.status(fast).fast or "reads gradients" in str(refold.status(fast).reason)
    change(module)
    agrees(fast, module)


def test_an_attribute_that_nothing_asks_for_costs_no_fast_call():
    module = module_of(lambda m, x: x * 2)
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    agrees(fast, module)
    module.epoch = 3
    agrees(fast, module)
    assert refold.status(fast).fast


def _placed(m: Any, x: Any) -> Any:
    m.places = x.shape[1]
    return x * getattr(m, "places", 1)


def test_an_attribute_that_forward_itself_sets_costs_no_fast_call():
    module = module_of(_placed)
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    for _ in range(2):
        with torch.no_grad():
            fast(torch.randn(5, 8))
        assert refold.status(fast).fast, refold.status(fast).reason


def _counted(m: Any, x: Any) -> Any:
    m.held.n += 1
    return x * m.held.n


def _written(m: Any, x: Any) -> Any:
    m.held += 1
    return x * float(m.held[0])


def _drawn(m: Any, x: Any) -> Any:
    return x if m.held.random() < 0.5 else x * 2


def _begun(value: Callable[[], Any]) -> Callable[[Any], None]:
    return lambda m: setattr(m, "held", value())


# what forward does with what it holds, and what that is at first
GOES_ON: dict[str, tuple[Any, Any]] = {
    "an object's number": (_counted, lambda: types.SimpleNamespace(n=0)),
    "an array": (_written, lambda: np.zeros(1)),
    "an iterator": (lambda m, x: x * next(m.held), lambda: iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    "a generator": (lambda m, x: x * next(m.held), lambda: (float(i + 1) for i in range(9))),
    "a generator of Python's": (_drawn, lambda: random.Random(3)),
    "a generator of numpy's": (_drawn, lambda: np.random.default_rng(3)),
}


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("name", GOES_ON)
def test_what_goes_on_at_each_call_does_so(name):
    """And `optimize` leaves it where it was."""
    then, value = GOES_ON[name]
    module, eager = (module_of(then, _begun(value)) for _ in range(2))
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(fast(x), eager(x), rtol=1e-4, atol=1e-5)


DISTANT = types.ModuleType("refold_distant")
exec("def take():\n    return float(next(COUNT))", vars(DISTANT))


def _taken(m: Any, x: Any) -> Any:
    return x * DISTANT.take() if m.takes else x * 2  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("takes", [False, True])
@pytest.mark.parametrize("installed", [False, True])
def test_a_counter_that_code_may_reach(takes, installed, monkeypatch, tmp_path):
    """That of another installed package costs no fast path where forward takes no number of it."""
    vars(DISTANT).update(COUNT=itertools.count(1), __file__=f"{tmp_path}/refold_distant.py")
    monkeypatch.setitem(sys.modules, DISTANT.__name__, DISTANT)
    if installed:
        monkeypatch.setattr(outside, "_INSTALLED", (str(tmp_path),))
    module = module_of(_taken, lambda m: setattr(m, "takes", takes))
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    assert (fast is module) == (takes or not installed), refold.status(fast).reason
    assert installed or repr(DISTANT.COUNT) == "count(1)"
    for _ in range(3):
        x, number = torch.randn(5, 8), int(repr(DISTANT.COUNT)[6:-1])
        with torch.no_grad():
            expected = module.linear(x) * (number if takes else 2)
            torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)
        assert repr(DISTANT.COUNT) == f"count({number + takes})"
        assert refold.status(fast).fast == (installed and not takes)


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_that_are_not_pytorchs_are_drawn_at_each_call(draw):
    def seeded(module: nn.Module) -> list[torch.Tensor]:
        random.seed(1)
        np.random.seed(1)
        with torch.no_grad():
            return [module(torch.ones(2, 8)) for _ in range(6)]

    eager = module_of(lambda m, x: x if draw() < 0.5 else x * 2)
    module = module_of(lambda m, x: x if draw() < 0.5 else x * 2)
    before = random.getstate(), np.random.get_state()[1].tolist()
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())
    for ours, theirs in zip(seeded(fast), seeded(eager), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_wrong_call_has_the_originals_error():
    module = module_of(lambda m, x: x * 2)
    fast = refold.optimize(module, torch.randn(5, 8), measure=False)
    said = []
    for one in (fast, module):
        with pytest.raises(TypeError) as caught, warnings.catch_warnings():
            one(torch.randn(5, 8), 1)
        said.append(str(caught.value))
    assert said[0] == said[1]


class _Strict:
    """Answers no name but by an end of the program."""

    def __getattr__(self, name: str) -> object:
        raise SystemExit(name)


MODULE.strict = _Strict()


class _Asserts(nn.Module):
    """pytest rewrites its assert, which then reads pytest's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dim() == 2 and MODULE.strict is not None
        return self.linear(x).sum(1)


def test_what_cannot_be_asked_is_not() -> None:
    module, x = _Asserts(), torch.randn(3, 6)
    names = set(_Asserts.forward.__code__.co_names)
    assert not all(map(str.isidentifier, names)), "pytest rewrote the assert"
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        torch.testing.assert_close(fast(x), module(x))
