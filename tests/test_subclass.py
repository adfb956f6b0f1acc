"""A twin is made without running what its class has for subclasses, new instances and copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn as nn

import refold

REGISTER: dict[str, object] = {}


class Base(nn.Module):
    """Two layers between which refold has something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.LayerNorm(7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x))).sum(-1)


class Plugin(Base):
    def __init_subclass__(cls, kind: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        REGISTER[kind] = cls


class Registered(Plugin, kind="registered"):
    pass


class ByName(Base):
    def __init_subclass__(cls) -> None:
        assert cls.__name__ not in REGISTER
        REGISTER[cls.__name__] = cls


class Named(ByName):
    pass


class Final(Base):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses, please")


class Counting(type):
    """Numbers its classes, which forward reads."""

    def __init__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> None:
        super().__init__(name, bases, names)
        assert name not in REGISTER
        REGISTER[name] = cls
        cls.number = len(REGISTER)  # type: ignore[attr-defined]


class Counted(Base, metaclass=Counting):
    number: int

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.number


class One(Base):
    """All its constructors give one instance."""

    instance: One | None = None

    def __new__(cls) -> One:
        if One.instance is None:
            One.instance = super().__new__(cls)
        return One.instance


class Wide(Base):
    def __new__(cls, width: int) -> Wide:
        made = super().__new__(cls)
        made.__dict__["width"] = width
        return made

    def __init__(self, width: int) -> None:
        super().__init__()

    def __getnewargs__(self) -> tuple[int]:
        return (self.width,)


def wide() -> Wide:
    return Wide(3)


MADE: tuple[Any, ...] = (Registered, Named, Final, Counted, One, wide)


@pytest.mark.parametrize("make", MADE, ids=lambda m: m.__name__)
def test_a_class_is_not_asked_for_its_twin(make):
    module, x = make().eval(), torch.randn(4, 5)
    before = dict(REGISTER)
    fast = refold.optimize(module, x, measure=False)
    assert fast is not module and type(fast).__mro__[1] is type(module)
    assert isinstance(fast, type(module)) and not isinstance(module, type(fast))
    assert before == REGISTER
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
    assert refold.status(fast).fast
    assert refold.original(fast) is module


class Remade(Base):
    """Holds what is neither copied nor pickled, and says how it is made anew."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.scaled = factor, lambda y: y * self.factor

    def __reduce__(self) -> tuple[Any, ...]:
        return remade, (self.factor, self.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(super().forward(x))


def remade(factor: float, state: dict[str, Any]) -> Remade:
    made = Remade(factor).eval()
    made.load_state_dict(state)
    return made


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_class_says_how_its_modules_are_copied(again):
    module, x = Remade(3.0).eval(), torch.randn(4, 5)
    fast = refold.optimize(module, x, measure=False)
    copied = again(fast)
    with torch.no_grad():
        torch.testing.assert_close(copied(x), module(x))
        module.first.weight.mul_(2)
        assert not torch.allclose(copied(x), module(x))
    assert type(copied) is type(fast) and refold.status(copied).fast
