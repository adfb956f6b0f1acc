"""Convolutions after each other, side by side, in part and pooled: one, where that is cheaper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from refold.devices import DeviceModel
from refold.engine import optimize
from refold.ir import as_scalar
from refold.ir.graph import is_parametric
from refold.planner import PlanPricer
from refold.rules.term import Term, Value, cat, conv, expand, image_pool, mean, relu, slice
from tests.engine.graphs import graph, p, x
from tests.rules.test_combination import close, values

CPU = PlanPricer(DeviceModel.of("cpu"))
ZERO = Value(as_scalar(0.0, torch.float32))


def image(channels: int = 16) -> Term:
    return x(4, channels, 20, 20)


def step(
    of: Term,
    features: int,
    size: int,
    padding: int = 0,
    groups: int = 1,
    bias: bool = True,
    name: str = "",
) -> Term:
    """A convolution of that many features."""
    channels = of.shape[-3]
    assert isinstance(channels, int)
    name = f"{name}{features}.{size}"
    w = p(f"w{name}", features, channels // groups, size, size)
    b = p(f"b{name}", features) if bias else ZERO
    return conv(of, w, b, (1, 1), (padding,) * 2, (1, 1), groups)


def spread(channels: int = 16) -> Term:
    """The mean of each channel, at every place."""
    return expand(mean(image(channels), (-2, -1)), (1, 4, channels, 20, 20))


# what is computed, and the shapes of the convolutions that are left
ONE: dict[str, tuple[Callable[[], Term], list[tuple[int, ...]]]] = {
    "channels mapped behind": (
        lambda: step(step(image(), 64, 3, padding=1), 16, 1),
        [(4, 16, 20, 20)],
    ),
    "channels mapped before": (lambda: step(step(image(), 64, 1), 16, 3), [(4, 16, 18, 18)]),
    "no shift before what is padded": (
        lambda: step(step(image(), 64, 1, bias=False), 16, 3, padding=1),
        [(4, 16, 20, 20)],
    ),
    "in groups": (
        lambda: step(step(image(), 64, 3, padding=1, groups=4), 16, 1, groups=4),
        [(4, 16, 20, 20)],
    ),
    "some channels": (
        lambda: slice(step(image(), 64, 3, padding=1), -3, 8, 8),
        [(4, 8, 20, 20)],
    ),
    "channels of some groups": (
        lambda: slice(step(image(), 64, 3, padding=1, groups=16), -3, 8, 8),
        [(4, 8, 20, 20)],
    ),
    "halves added": (
        lambda: (
            slice(step(image(), 64, 3, padding=1), -3, 0, 32)
            + slice(step(image(), 64, 3, padding=1), -3, 32, 32)
        ),
        [(4, 32, 20, 20)],
    ),
    "some places": (lambda: slice(step(image(), 64, 3, padding=1), -1, 4, 8), [(4, 64, 20, 8)]),
    "side by side": (
        lambda: cat(step(image(), 32, 1), step(image(), 16, 1, bias=False), -3),
        [(4, 48, 20, 20)],
    ),
    "beside what is spread": (
        lambda: step(cat(image(), spread(), -3), 64, 1),
        [(4, 64, 1, 1), (4, 64, 20, 20)],
    ),
    "behind what is spread": (
        lambda: step(cat(spread(), image(), -3), 64, 1),
        [(4, 64, 1, 1), (4, 64, 20, 20)],
    ),
    "pooled": (
        lambda: image_pool(step(image(), 64, 1), (2, 2), (2, 2)),
        [(4, 64, 10, 10)],
    ),
}
APART: dict[str, Callable[[], Term]] = {
    "a shift before what is padded": lambda: step(step(image(), 64, 1), 16, 3, padding=1),
    "a function between": lambda: step(relu(step(image(), 64, 3, padding=1)), 16, 1),
    "other groups": lambda: step(step(image(), 16, 3, padding=1, groups=16), 64, 1),
    "places at the border": lambda: slice(step(image(), 64, 3, padding=1), -1, 0, 8),
    "other windows": lambda: cat(
        step(image(), 32, 3, padding=1), step(image(), 32, 5, padding=2), -3
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_less_is_convolved(name: str) -> None:
    make, left = ONE[name]
    g = graph(make())
    done = optimize(g, CPU)
    found = [n.shape[1:] for n in done.graph.nodes() if n.op == "conv" and not is_parametric(n)]
    assert sorted(found) == left
    assert done.label == "reals"
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


@pytest.mark.parametrize("name", APART)
def test_what_is_not_the_same_stays(name: str) -> None:
    g = graph(APART[name]())
    done = optimize(g, CPU)
    before, after = (
        [n.shape for n in made.nodes() if n.op == "conv" and not is_parametric(n)]
        for made in (g, done.graph)
    )
    assert before == after
