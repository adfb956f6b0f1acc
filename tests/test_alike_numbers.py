"""Values that Python takes for equal and that compute otherwise: 1, True and 1.0, 0.0 and -0.0,
dicts in another order. As attributes, inside what attributes hold, globals, arguments, defaults."""

from __future__ import annotations

import collections
import dataclasses
import types

import pytest
import torch
from torch import nn

import refold
from refold.runtime.held import _refold_alike

ZERO, ONE = 0.0, {"one": 1}


@dataclasses.dataclass
class Held:
    one: object = 1
    pair: tuple = (1, (2, 0.0))


class Reads(nn.Module):
    """Gives a result for all that it reads: what is whole stays whole, and a zero has a sign."""

    of_class = 0.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.zero, self.pair, self.held = 0.0, (1, 2), Held()
        self.listed, self.named = [1, (0.0,)], {"a": 1, "b": (2, 0.0)}
        self.deque, self.ordered = collections.deque([1]), collections.OrderedDict(a=1, b=2)
        self.view, self.set = types.MappingProxyType(own := {"a": 1}), {1, 5}
        self.space, self.own, self.cell = types.SimpleNamespace(a=(1,)), own, (inner := [1])
        self.scaled = lambda v: v * inner[0]

    def forward(self, x, i, zero=0.0, pair=(1, 2)):
        whole = [self.pair[0], self.held.one, self.held.pair[0], self.listed[0], self.named["a"]]
        whole += [self.deque[0], self.ordered["a"], self.view["a"], min(self.set), pair[0]]
        whole += [self.space.a[0], ONE["one"], *self.named.values()][:-1]
        zeros = [self.zero, self.held.pair[1][1], self.listed[1][0], self.named["b"][1], zero]
        y = torch.sigmoid(self.linear(x)).sum(1)
        first = [torch.cat([y / z for z in (*zeros, ZERO, self.of_class)])]
        ordered = torch.cat([y * v for v in self.ordered.values()])
        return first, [i * v for v in whole], self.scaled(i), ordered


def _calls():
    """What makes one of the values another that is equal."""
    return {
        "an attribute": lambda m: setattr(m, "zero", -0.0),
        "a tuple": lambda m: setattr(m, "pair", (1.0, 2)),
        "a field": lambda m: setattr(m.held, "one", True),
        "a tuple in a tuple of a field": lambda m: setattr(m.held, "pair", (1, (2, -0.0))),
        "an equal object": lambda m: setattr(m, "held", Held(1.0)),
        "in a list": lambda m: m.listed.__setitem__(0, 1.0),
        "a tuple in a list": lambda m: m.listed.__setitem__(1, (-0.0,)),
        "in a dict": lambda m: m.named.update(a=1.0),
        "a tuple in a dict": lambda m: m.named.update(b=(2, -0.0)),
        "a dict's order": lambda m: m.named.update(a=m.named.pop("a"), b=m.named.pop("b")),
        "an ordered dict": lambda m: m.ordered.update(a=1.0),
        "its order": lambda m: m.ordered.move_to_end("a"),
        "a deque": lambda m: m.deque.__setitem__(0, 1.0),
        "a view": lambda m: m.own.update(a=1.0),
        "a set": lambda m: (m.set.discard(1), m.set.add(1.0)),
        "a namespace": lambda m: setattr(m.space, "a", (1.0,)),
        "a closure": lambda m: m.cell.__setitem__(0, 1.0),
        "a class": lambda m: setattr(Reads, "of_class", -0.0),
        "a global": lambda m: globals().update(ZERO=-0.0),
        "in a global": lambda m: ONE.update(one=True),
    }


@pytest.fixture
def reads():
    x, i = torch.randn(5, 16), torch.arange(5)
    model = Reads().eval()
    yield model, refold.optimize(model, x, i, measure=False), x, i
    Reads.of_class = 0.0
    globals().update(ZERO=0.0)
    ONE.update(one=1)


def test_equal_values_are_told_apart(reads):
    """One after the other: each call is right, and the first behind a change takes the original."""
    model, fast, x, i = reads
    with torch.no_grad():
        torch.testing.assert_close(fast(x, i), model(x, i))
        assert refold.status(fast).fast
        for given in ({"zero": -0.0}, {"pair": (1.0, 2)}, {"pair": (True, 2)}):
            torch.testing.assert_close(fast(x, i, **given), model(x, i, **given), msg=str(given))
        for name, change in _calls().items():
            change(model)
            ours, theirs = fast(x, i), model(x, i)
            torch.testing.assert_close(ours, theirs, msg=lambda m, name=name: f"{name}: {m}")


SAME = (
    (1.0, 1.0), (float("nan"), float("nan")), ((1, "a"), (1, "a")), ([0.0, None], [0.0, None]),
    ({"a": [1]}, {"a": [1]}), ({1, 2}, {2, 1}), (torch.float32, torch.float32), (b"a", b"a"),
    (range(3), range(3)), (torch.device("cpu"), torch.device("cpu")),
)  # fmt: skip
OTHERS = (
    (1, 1.0), (1, True), (0.0, -0.0), (0j, -0j), ((1,), (True,)), ([1], [1.0]), ([1], (1,)),
    ({"a": 0.0}, {"a": -0.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: 2}, {True: 2}),
    ({1}, {1.0}), (Held(), Held()), ([1], [1, 2]), (torch.zeros(1), torch.zeros(1)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "same"), [(*p, True) for p in SAME] + [(*p, False) for p in OTHERS]
)
def test_what_is_alike(a, b, same):
    assert _refold_alike(a, b) is same
