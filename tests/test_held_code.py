"""Functions and parts that a module holds in attributes: each way to hold x each change."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refold

WIDTH = 16
SCALE = 2.0
TABLE: dict[str, Any] = {"scale": 2.0}
SPACE = types.SimpleNamespace(only_here=2.0)
SLOPED = nn.LeakyReLU(0.1)
FUNCTIONS = {"scaled": lambda x: x * SCALE}


def scaled(x):
    return x * SCALE


class Body(nn.Module):
    """`made` gives what forward calls, and, of functions, what changes what that does."""

    def __init__(self, made: Callable[[Any], Any]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        made(self)

    def forward(self, x):
        return self.call(x).tanh().sum(1) + self.b(x).sum(1)


class Calls:
    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self, x):
        return self.part(x)


def body(made: Callable[[Any], Any]) -> nn.Module:
    torch.manual_seed(0)
    return Body(made).eval().requires_grad_(False)


def agrees(fast: nn.Module, module: nn.Module) -> None:
    torch.manual_seed(1)
    x = torch.randn(5, WIDTH)
    with torch.no_grad():
        expected = module(x)
        for _ in range(3):
            torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)


def _over(part: Any) -> Callable[[Any], Any]:
    return lambda x: part(x)


def _default(part: Any) -> Callable[[Any], Any]:
    def call(x, part=part):
        return part(x)

    return call


# in the attribute `call` of a module, which calls its part `a`, or itself
PARTS: dict[str, Callable[[Any], Any]] = {
    "a closure over a part": lambda m: setattr(m, "call", _over(m.a)),
    "a closure over the module": lambda m: setattr(m, "call", lambda x: m.a(x)),
    "a default": lambda m: setattr(m, "call", _default(m.a)),
    "a partial": lambda m: setattr(m, "call", functools.partial(nn.Module.__call__, m.a)),
    "a bound method": lambda m: setattr(m, "call", m.a.forward),
    "an object": lambda m: setattr(m, "call", Calls(m.a)),
    "objects in objects": lambda m: setattr(m, "call", Calls(Calls(Calls(m.a)))),
    "no place of its own": lambda m: vars(m).update(call=m.a),
}


def _replaced(m: Any) -> None:
    m.a = nn.Linear(WIDTH, WIDTH)


def _written(m: Any) -> None:
    with torch.no_grad():
        m.a.weight.mul_(2)


def _anew(m: Any) -> None:
    m.a.weight = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)


CHANGES = {"replaced": _replaced, "written": _written, "a parameter anew": _anew}


def _seeded(change: Callable[[Any], None], *modules: nn.Module) -> None:
    for one in modules:
        torch.manual_seed(2)
        change(one)


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_held_elsewhere_is_the_one_that_is_called(name, how):
    """A copy's function calls the original's part; a part that was replaced is called still."""
    module = body(PARTS[name])
    x = torch.randn(5, WIDTH)
    fast = refold.optimize(module, x, measure=False)
    agrees(fast, module)
    assert refold.status(fast).fast
    copies = copy.deepcopy(fast), copy.deepcopy(module)
    agrees(*copies)
    _seeded(CHANGES[how], *copies)
    agrees(*copies)
    agrees(fast, module)
    _seeded(CHANGES[how], module)
    agrees(fast, module)
    agrees(*copies)


def _closes_over_a_number(m: Any) -> Callable[[], None]:
    scale = 2.0

    def change() -> None:
        nonlocal scale
        scale = 3.0

    m.call = lambda x: x * scale
    return change


def _closes_over_a_function(m: Any) -> Callable[[], None]:
    def inner(x):
        return x * 2

    def change() -> None:
        nonlocal inner
        inner = torch.exp  # type: ignore[assignment]

    m.call = lambda x: inner(x)
    return change


def _another_part(m: Any) -> Callable[[], None]:
    part = m.a

    def change() -> None:
        nonlocal part
        part = m.b

    m.call = lambda x: part(x)
    return change


def _of_function(how: str) -> Callable[[Any], Callable[[], None]]:
    def made(m: Any) -> Callable[[], None]:
        def call(x, scale=2.0):
            return x * scale * getattr(call, "more", 1.0)

        def other(x, scale=2.0):
            return x + scale + getattr(call, "more", 1.0)

        m.call = call
        return {
            "default": lambda: setattr(call, "__defaults__", (3.0,)),
            "attribute": lambda: setattr(call, "more", 3.0),
            "code": lambda: setattr(call, "__code__", other.__code__),
        }[how]

    return made


def _global(call: Callable[[Any], Any], **names: Any) -> Callable[[Any], Callable[[], None]]:
    def made(m: Any) -> Callable[[], None]:
        m.call = call
        return lambda: globals().update(names)

    return made


def _changing(call: Any, change: Callable[[], None]) -> Callable[[Any], Callable[[], None]]:
    return lambda m: setattr(m, "call", call) or change


def _own_number(m: Any) -> Callable[[], None]:
    m.scale = 2.0
    m.call = lambda x: x * m.scale
    return lambda: setattr(m, "scale", 3.0)


def _outside(change: Callable[[Any], Any]) -> Callable[[Any], Callable[[], None]]:
    """A module that is no part of the model."""

    def made(m: Any) -> Callable[[], None]:
        held = nn.LeakyReLU(0.1)
        m.call = lambda x: held(x)
        return lambda: change(held)

    return made


def _hook(held: nn.Module) -> None:
    held.register_forward_hook(lambda m, args, result: result * 3)


def _in_torchs_own(m: Any) -> Callable[[], None]:
    m.encoder = nn.TransformerEncoderLayer(
        WIDTH, 4, 32, activation=lambda x: x.relu() * SCALE, batch_first=True
    )
    m.encoder.eval().requires_grad_(False)
    m.call = lambda x: m.encoder(x[:, None])[:, 0]
    return lambda: globals().update(SCALE=3.0)


def _wrapped(m: Any) -> Callable[[], None]:
    @functools.wraps(torch.relu)
    def call(x):
        return torch.relu(x) * SCALE

    m.call = torch.no_grad()(call)
    return lambda: globals().update(SCALE=3.0)


# what a held function reads: it is put in the attribute `call`; gives what changes it
READS: dict[str, Callable[[Any], Callable[[], None]]] = {
    "a number that it closes over": _closes_over_a_number,
    "a function that it closes over": _closes_over_a_function,
    "a part that it closes over": _another_part,
    "its default": _of_function("default"),
    "its attribute": _of_function("attribute"),
    "its code": _of_function("code"),
    "a global number": _global(lambda x: x * SCALE, SCALE=3.0),
    "a global function": _global(lambda x: scaled(x), scaled=torch.exp),
    "a global that a function reads": _global(lambda x: scaled(x), SCALE=3.0),
    "a global that a partial reads": _global(functools.partial(scaled), SCALE=3.0),
    "a global dict": _changing(lambda x: x * TABLE["scale"], lambda: TABLE.update(scale=3.0)),
    "an object's field": _changing(
        lambda x: x * SPACE.only_here, lambda: setattr(SPACE, "only_here", 3.0)
    ),
    "a global dict's function": _global(lambda x: FUNCTIONS["scaled"](x), SCALE=3.0),
    "a global module's setting": _changing(
        lambda x: SLOPED(x), lambda: setattr(SLOPED, "negative_slope", 0.9)
    ),
    "the module's number": _own_number,
    "another module's setting": _outside(lambda held: setattr(held, "negative_slope", 0.9)),
    "another module's hooks": _outside(_hook),
    "in a part of PyTorch's": _in_torchs_own,
    "under decorators": _wrapped,
}


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("name", READS)
def test_what_a_held_function_reads_is_followed(name, monkeypatch):
    for key in ("SCALE", "scaled"):
        monkeypatch.setitem(globals(), key, globals()[key])
    monkeypatch.setitem(TABLE, "scale", 2.0)
    monkeypatch.setattr(SPACE, "only_here", 2.0)
    monkeypatch.setattr(SLOPED, "negative_slope", 0.1)
    changes = []
    module = body(lambda m: changes.append(READS[name](m)))
    fast = refold.optimize(module, torch.randn(5, WIDTH), measure=False)
    agrees(fast, module)
    assert refold.status(fast).fast
    changes[0]()
    agrees(fast, module)
    assert refold.status(fast).fast, refold.status(fast).reason


def test_hooks_of_a_module_that_is_no_part_are_captured():
    def made(m: Any) -> None:
        held = nn.LeakyReLU(0.1)
        _hook(held)
        m.call = lambda x: held(x)

    module = body(made)
    fast = refold.optimize(module, torch.randn(5, WIDTH), measure=False)
    agrees(fast, module)
    assert refold.status(fast).fast
