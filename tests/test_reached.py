"""What forward's code reads: by whose class, by which module, by which way, is one question.

A row of WAYS is a model and a change of something that its code reads. The change has to be seen.
"""

from __future__ import annotations

import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from refold.runtime.met import _refold_kinds
from refold.runtime.reach import _refold_reach, _refold_reach_difference

WIDTH = 16
CODE = """
import torch

SCALE = 2.0


def act(x):
    return x * SCALE


def runs(module, x):
    return module.before(x)


class Helper:
    factor = 1.5

    @staticmethod
    def still(x):
        return x * 2

    @classmethod
    def scaled(cls, x):
        return x * cls.factor

    def plus(self, x):
        return x + self.factor


class Derived(Helper):
    pass


class Base(torch.nn.Module):
    unread = 1

    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(16, 16)

    def before(self, x):
        return x * 2

    def forward(self, x):
        return self.l(self.before(x)).mean(-1)
"""
FAR = types.ModuleType("refold_tests_far")
exec(compile(CODE, "far.py", "exec"), FAR.__dict__)
INNER = types.ModuleType("refold_tests_far.inner")
exec(compile(CODE, "inner.py", "exec"), INNER.__dict__)
FAR.inner = INNER  # type: ignore[attr-defined]
sys.modules[FAR.__name__] = FAR
far: Any = FAR
Base: Any = far.Base


class Super(Base):
    def forward(self, x):
        return super().forward(x) + 1


class Twice(Super):
    def forward(self, x):
        return super().forward(x) * 2


class ByName(far.Base):
    def forward(self, x):
        return far.Base.forward(self, x) + 1


class Overrides(far.Base):
    def before(self, x):
        return x * far.SCALE

    def forward(self, x):
        return far.Base.forward(self, x)


class Inherits(far.Base):
    pass


class ByFunction(far.Base):
    def forward(self, x):
        return far.runs(self, x).mean(-1)


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(WIDTH, WIDTH)

    def encode(self, x):
        return self.l(x) * far.SCALE

    def forward(self, x):
        return x


class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def forward(self, x):
        return self.child.encode(x).mean(-1)


class Own(nn.Linear):
    def forward(self, x):
        return super().forward(x) * far.SCALE


class Calls(nn.Module):
    """`call` is what forward calls."""

    call: Any

    class Nested:
        @staticmethod
        def still(x):
            return x * 2

    class Applied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * far.SCALE

        @staticmethod
        def backward(ctx, g):
            return g

    def __init__(self, held=None):
        super().__init__()
        self.l, self.held = nn.Linear(WIDTH, WIDTH), held

    def forward(self, x):
        return self.call(self.l(x)).mean(-1)


def calls(code: Callable[..., Any], held: Any = None) -> Callable[[], nn.Module]:
    return lambda: type("Calling", (Calls,), {"call": code})(held)


def closed() -> nn.Module:
    kind = far.Base
    return calls(lambda self, x: kind.before(self, x))()


def through(fn):
    return lambda self, x: fn(x)


class Asks(far.Base):
    def forward(self, x):
        return getattr(self, "before")(self.l(x)).mean(-1)  # noqa: B009


STILL = (far.Helper, "still", staticmethod(torch.exp))
BEFORE = (far.Base, "before", lambda self, x: x * 5)
SCALE = (far, "SCALE", 9.0)
FORWARD = (far.Base, "forward", lambda self, x: self.l(x).sum(-1))
GELU = (F, "gelu", torch.exp)
Change = tuple[Any, str, Any]
WAYS: dict[str, tuple[Callable[[], nn.Module], Change]] = {
    "super": (Super, FORWARD),
    "what super's forward calls": (Super, BEFORE),
    "super of super": (Twice, FORWARD),
    "a base's forward by its name": (ByName, FORWARD),
    "what that one calls": (ByName, BEFORE),
    "what a class gives to its base": (Overrides, SCALE),
    "what is inherited": (Inherits, BEFORE),
    "a method that a function calls": (ByFunction, BEFORE),
    "a method of a part": (Parent, (Child, "encode", lambda self, x: self.l(x))),
    "what a part's method reads": (Parent, SCALE),
    "PyTorch's layer by super": (lambda: nn.Sequential(Own(4, 4)), (nn.Linear, "forward", F.relu)),
    "what is around PyTorch's layer": (lambda: nn.Sequential(Own(4, 4)), SCALE),
    "a class of a module": (calls(lambda self, x: far.Helper.still(x)), STILL),
    "an inherited function": (calls(lambda self, x: far.Derived.still(x)), STILL),
    "a class's number": (calls(lambda self, x: far.Helper.scaled(x)), (far.Helper, "factor", 9.0)),
    "an object's class": (calls(lambda self, x: far.Helper().plus(x)), (far.Helper, "factor", 9.0)),
    "a closure's class": (closed, BEFORE),
    "a closure's function": (calls(through(far.act)), SCALE),
    "a class in an attribute": (calls(lambda self, x: self.held.still(x), far.Helper), STILL),
    "a class in a list": (calls(lambda self, x: self.held[0].still(x), [far.Helper]), STILL),
    "a module in an attribute": (calls(lambda self, x: self.held.act(x), far), SCALE),
    "a module of a module": (calls(lambda self, x: far.inner.act(x)), (INNER, "SCALE", 9.0)),
    "PyTorch's module of a module": (calls(lambda self, x: torch.nn.functional.gelu(x)), GELU),
    "a nested class": (calls(lambda self, x: self.Nested.still(x)), (Calls.Nested, *STILL[1:])),
    "a function with gradients of its own": (calls(lambda self, x: self.Applied.apply(x)), SCALE),
    "a method by its text": (Asks, BEFORE),
    "a function by its text": (
        calls(lambda self, x: getattr(far, "act")(x)),  # noqa: B009
        (far, "act", torch.exp),
    ),
    "a method by methodcaller": (
        calls(lambda self, x: operator.methodcaller("still", x)(far.Helper)),
        STILL,
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_code_reads_is_reached(name, monkeypatch):
    make, change = WAYS[name]
    module = make()
    module(torch.randn(2, module[0].in_features if isinstance(module, nn.Sequential) else WIDTH))
    reached = _refold_reach(_refold_kinds(module))
    assert _refold_reach_difference(reached) is None
    with monkeypatch.context() as patch:
        patch.setattr(*change)
        assert _refold_reach_difference(reached) is not None
    assert _refold_reach_difference(reached) is None


@pytest.mark.parametrize("change", [(far.Base, "unread", 2), (far, "runs", None)])
def test_what_no_code_names_is_not_reached(change, monkeypatch):
    reached = _refold_reach(_refold_kinds(Super()))
    monkeypatch.setattr(*change)
    assert _refold_reach_difference(reached) is None


def test_a_librarys_modules_lead_to_no_other_library():
    module = calls(lambda self, x: torch.utils.data.sampler.Sampler and torch.fx.node and x)()
    reached = _refold_reach(_refold_kinds(module))
    tops = {str(f.__module__).split(".")[0] for f, _ in reached.functions.values()}
    assert tops <= {__name__.split(".")[0], "torch"}, tops


def test_pythons_own_code_reads_no_setting_of_the_script(monkeypatch):
    """`inspect.getmodule` names "__main__", where a script counts its losses."""
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "counted", 1, raising=False)
    module = calls(lambda self, x: inspect.getmodule(type(self)) and x)()
    reached = _refold_reach(_refold_kinds(module))
    assert any(f is inspect.getmodule for f, _ in reached.functions.values())
    monkeypatch.setattr(main, "counted", 2)
    assert _refold_reach_difference(reached) is None


class Several(Super):
    def __init__(self):
        super().__init__()
        self.part = Parent()

    def forward(self, x):
        return super().forward(x) + self.part(x)


def test_results_follow_what_code_reads(monkeypatch):
    module = Several().eval()
    x = torch.randn(5, WIDTH)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
        assert refold.status(fast).fast
        for change in (BEFORE, SCALE, FORWARD):
            with monkeypatch.context() as patch:
                patch.setattr(*change)
                torch.testing.assert_close(fast(x), module(x))
            torch.testing.assert_close(fast(x), module(x))
        assert refold.status(fast).fast
