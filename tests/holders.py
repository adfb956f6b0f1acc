"""All the ways in which a model may hold what forward reads: a tensor, or a number.

A row of HOLDERS says how a value is put where it is held, and how forward reads it. It works for
tensors and numbers alike. WAYS are the ways to change a tensor, by what holds it or in place.
"""

from __future__ import annotations

import argparse
import collections
import contextvars
import dataclasses
import functools
import os
import sys
import threading
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

WIDTH = 16
HELD: Any = None
LIST: list[Any] = [None]
DICT: dict[Any, Any] = {}
SPACE = types.SimpleNamespace(inner=types.SimpleNamespace(value=None))
ARGUMENTS = argparse.Namespace(value=None, epoch=0)
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")
LOCAL = threading.local()
MODULE = types.ModuleType("refold_tests_settings")
sys.modules[MODULE.__name__] = MODULE


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return (self.fc(x) * self.held()).relu().sum(1)


@dataclasses.dataclass
class Data:
    value: Any
    lock: Any = dataclasses.field(default_factory=threading.Lock)


@dataclasses.dataclass(slots=True)
class Slots:
    value: Any


class Pair(typing.NamedTuple):
    value: Any
    other: int = 1


class Helper:
    def __init__(self, value: Any) -> None:
        self._value, self.calls = value, iter([])

    @property
    def value(self) -> Any:
        return self._value

    def __call__(self) -> Any:
        return self._value


class Getting(dict):
    __getattr__ = dict.__getitem__


def function(value: Any = None) -> Any:
    return value if value is not None else function.value  # type: ignore[attr-defined]


def default(value: Any = None) -> Any:
    return value


def _globally(m: nn.Module, value: Any) -> None:
    globals()["HELD"] = value


@dataclasses.dataclass(frozen=True)
class Holder:
    """held: forward's code. put: puts a value where it is held. takes: what may be held. tensor: of
    what forward reads something."""

    held: Callable[[Any], Any]
    put: Callable[[Any, Any], object]
    takes: tuple[str, ...] = ("tensor", "number")
    tensor: Callable[[Any], torch.Tensor] | None = None

    def made(self, value: Any) -> nn.Module:
        module = type("Holding", (Body,), {"held": self.held})().eval().requires_grad_(False)
        self.put(module, value)
        return module


def _in(name: str, make: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    return lambda m, v: setattr(m, name, make(v))


def _cell() -> Holder:
    held, box = None, [None]

    def put(m: Any, v: Any) -> None:
        nonlocal held
        held = v
        box[0] = v

    return Holder(lambda self: held if box is not None else box, put)


def _box() -> Holder:
    box: dict[str, Any] = {}
    return Holder(lambda self: box["a"], lambda m, v: box.__setitem__("a", v))


class Cached(Body):
    @functools.cached_property
    def value(self):
        return torch.linspace(0.5, 2.0, WIDTH)

    def held(self):
        return self.value


def _environment(m: Any, v: Any) -> None:
    os.environ["REFOLD_TESTS_VALUE"] = str(v)


def _from_module(self: Any) -> Any:
    from refold_tests_settings import value

    return value


NUMBER, TENSOR = ("number",), ("tensor",)
HOLDERS: dict[str, Holder] = {
    "an attribute": Holder(lambda self: self.value, _in("value", lambda v: v)),
    "past setattr": Holder(lambda self: self.value, lambda m, v: vars(m).update(value=v)),
    "a buffer": Holder(lambda self: self.value, lambda m, v: m._buffers.update(value=v), TENSOR),
    "a list": Holder(lambda self: self.value[0], _in("value", lambda v: [v])),
    "a tuple": Holder(lambda self: self.value[0], _in("value", lambda v: (v,))),
    "a deque": Holder(lambda self: self.value[0], _in("value", lambda v: collections.deque([v]))),
    "a dict": Holder(lambda self: self.value["a"], _in("value", lambda v: {"a": v})),
    "a dict in a list": Holder(lambda self: self.value[0]["a"], _in("value", lambda v: [{"a": v}])),
    "a view of a dict": Holder(
        lambda self: self.value["a"], _in("value", lambda v: types.MappingProxyType({"a": v}))
    ),
    "a dict's subclass": Holder(lambda self: self.value.a, _in("value", lambda v: Getting(a=v))),
    "a dataclass": Holder(lambda self: self.value.value, _in("value", Data)),
    "slots": Holder(lambda self: self.value.value, _in("value", Slots)),
    "a named tuple": Holder(lambda self: self.value.value, _in("value", Pair)),
    "a helper's property": Holder(lambda self: self.value.value, _in("value", Helper)),
    "a helper that is called": Holder(lambda self: self.value(), _in("value", Helper)),
    "a partial": Holder(
        lambda self: self.value(), _in("value", lambda v: functools.partial(default, v))
    ),
    "a bound method": Holder(lambda self: self.value(), _in("value", lambda v: Helper(v).__call__)),
    "objects in objects": Holder(
        lambda self: self.value.value.value.value.value.value,
        _in("value", lambda v: Data(Data(Slots(Data(Data(v)))))),
    ),
    "a global": Holder(lambda self: HELD, _globally),
    "a global list": Holder(lambda self: LIST[0], lambda m, v: LIST.__setitem__(0, v)),
    "a global dict": Holder(lambda self: DICT["a"], lambda m, v: DICT.__setitem__("a", v)),
    "a global object": Holder(
        lambda self: SPACE.inner.value, lambda m, v: setattr(SPACE.inner, "value", v)
    ),
    "parsed arguments": Holder(
        lambda self: ARGUMENTS.value, lambda m, v: setattr(ARGUMENTS, "value", v)
    ),
    "a closure": _cell(),
    "a closure's dict": _box(),
    "a class's attribute": Holder(
        lambda self: self.value, lambda m, v: setattr(type(m), "value", v)
    ),
    "a class's dict": Holder(
        lambda self: self.value["a"], lambda m, v: setattr(type(m), "value", {"a": v})
    ),
    "a function's attribute": Holder(
        lambda self: function(), lambda m, v: setattr(function, "value", v)
    ),
    "a default": Holder(
        lambda self: default(), lambda m, v: setattr(default, "__defaults__", (v,))
    ),
    "a context variable": Holder(lambda self: VARIABLE.get(), lambda m, v: VARIABLE.set(v)),
    "a thread's own": Holder(lambda self: LOCAL.value, lambda m, v: setattr(LOCAL, "value", v)),
    "a module imported in forward": Holder(_from_module, lambda m, v: setattr(MODULE, "value", v)),
    "the environment": Holder(
        lambda self: float(os.environ["REFOLD_TESTS_VALUE"]), _environment, NUMBER
    ),
    "a number of numpy's": Holder(lambda self: float(self.value), _in("value", np.float32), NUMBER),
    "an array's element": Holder(
        lambda self: float(self.value[1]), _in("value", lambda v: np.full(3, v)), NUMBER
    ),
    "an array": Holder(
        lambda self: torch.from_numpy(self.value),
        _in("value", lambda v: v.numpy()),
        TENSOR,
        lambda m: torch.from_numpy(m.value),
    ),
    "a copy of an array": Holder(
        lambda self: torch.tensor(self.value),
        _in("value", lambda v: v.numpy()),
        TENSOR,
        lambda m: torch.from_numpy(m.value),
    ),
    "a tensor's number": Holder(
        lambda self: self.value[0].item(), _in("value", lambda v: v), TENSOR, lambda m: m.value
    ),
    "a tensor's list": Holder(
        lambda self: torch.tensor(self.value.tolist()),
        _in("value", lambda v: v),
        TENSOR,
        lambda m: m.value,
    ),
    "a parameter in a list": Holder(
        lambda self: self.value[0],
        _in("value", lambda v: [nn.Parameter(v, requires_grad=False)]),
        TENSOR,
    ),
    "a module in a list": Holder(
        lambda self: self.value[0].weight[0],
        lambda m, v: setattr(m, "value", [_linear(v)]),
        TENSOR,
    ),
}


def _linear(v: torch.Tensor) -> nn.Linear:
    made = nn.Linear(WIDTH, 1, bias=False)
    made.weight = nn.Parameter(v[None], requires_grad=False)
    return made


def _numpy(t: torch.Tensor) -> None:
    seen = t.numpy()
    seen *= 2


def _anew(t: torch.Tensor) -> None:
    t.data = t.data * 2


def _part(t: torch.Tensor) -> None:
    t.numpy()[3] += 5  # of few words all are looked at


# in the memory of a tensor that is held
WAYS: dict[str, Callable[[torch.Tensor], object]] = {
    "mul_": lambda t: t.mul_(2),
    "data.mul_": lambda t: t.data.mul_(2),
    "numpy": _numpy,
    "a part, by numpy": _part,
    ".data =": _anew,
}
