"""Features in groups, as of heads: their sums are products and convolutions with summed weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from refold.devices import DeviceModel
from refold.engine import optimize
from refold.ir import Graph
from refold.ir.graph import is_parametric
from refold.planner import PlanPricer
from refold.rules.term import Term, conv, linear, mean, permute, reshape, sum
from tests.engine.graphs import graph, p, x
from tests.rules.test_combination import close, values

CPU = PlanPricer(DeviceModel.of("cpu"))


def heads(rows: int = 128) -> Term:
    """Features of a product, shifted, as four heads."""
    made = linear(x(rows, 64), p("w", 64, 64)) + p("b", 64)
    return reshape(made, (1, 1, rows, 4, 16))


def channels(groups: int = 1, shape: tuple[int, ...] = (4, 4, 8, 12, 12)) -> Term:
    """Channels of a convolution as four groups of eight."""
    w = p("w", 32, 16 // groups, 3, 3)
    made = conv(x(4, 16, 12, 12), w, p("b", 32), (1, 1), (1, 1), (1, 1), groups)
    return reshape(made, shape)


# what is summed, its op, and how many features are left
ONE: dict[str, tuple[Callable[[], Term], str, int]] = {
    "over heads": (lambda: mean(heads(), (-2,)), "linear", 16),
    "within heads": (lambda: sum(heads(), (-1,)), "linear", 4),
    "over heads that changed places": (
        lambda: sum(permute(heads(), (0, 1, 3, 2, 4)), (-3,)),
        "linear",
        16,
    ),
    "a factor for each head": (lambda: sum(heads() * p("s", 4, 1), (-2,)), "linear", 16),
    "a factor for each feature": (lambda: mean(heads() * p("s", 4, 16), (-1,)), "linear", 4),
    "less a value of each head": (lambda: mean(heads() - p("s", 4, 1), (-2,)), "linear", 16),
    "over channels": (lambda: sum(channels(), (-4,)), "conv", 8),
    "within groups of channels": (lambda: mean(channels(), (-3,)), "conv", 4),
    "within groups of a convolution": (lambda: mean(channels(2), (-3,)), "conv", 4),
}
APART: dict[str, Callable[[], Term]] = {
    "over rows that a reshape cuts": lambda: sum(
        reshape(linear(x(128, 64), p("w", 64, 64)), (1, 1, 8, 16, 64)), (-2,)
    ),
    "over groups of a convolution": lambda: mean(channels(4), (-4,)),
    "a shape that mixes rows and features": lambda: sum(
        reshape(linear(x(6, 10), p("w", 10, 10)), (1, 1, 4, 5, 3)), (-1,)
    ),
}


def rows_of(made: Graph, op: str) -> list[int]:
    """The features of what is left of the products."""
    axis = {"linear": -1, "conv": -3}[op]
    return [n.shape[axis] for n in made.nodes() if n.op == op and not is_parametric(n)]


@pytest.mark.parametrize("name", ONE)
def test_the_sum_is_one_product_of_fewer_features(name: str) -> None:
    make, op, features = ONE[name]
    g = graph(make())
    done = optimize(g, CPU)
    assert rows_of(done.graph, op) == [features]
    assert done.label == "reals"
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


@pytest.mark.parametrize("name", APART)
def test_what_is_no_group_of_features_stays_right(name: str) -> None:
    g = graph(APART[name]())
    done = optimize(g, CPU)
    assert not any("in-groups" in s.rule for s in done.steps)
    assert close(*values(g.roots()[0], done.graph.roots()[0]))
