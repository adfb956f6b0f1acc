"""Branches of one input that have not the same form are one map; and every step has its reasons."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from refold.devices import DeviceModel
from refold.engine import optimize
from refold.engine.egraph import Applied, EGraph
from refold.engine.saturate import Budget, saturate
from refold.ir import as_scalar
from refold.ir.graph import is_parametric
from refold.planner import PlanPricer
from refold.rules import RULES
from refold.rules.term import Term, Value, apply, conv, linear, mean, relu
from tests.engine.graphs import graph, p, x
from tests.rules.test_combination import close, values

CPU = PlanPricer(DeviceModel.of("cpu"))
ZERO = Value(as_scalar(0.0, torch.float32))


def image(channels: int = 16) -> Term:
    return x(4, channels, 12, 12)


def summed() -> Term:
    """An image that is a sum itself, as behind a residual."""
    return image() + relu(x(4, 16, 12, 12, name="y"))


def branch(
    size: int,
    stride: int = 1,
    groups: int = 1,
    apart: int = 1,
    bias: bool = False,
    of: Callable[[], Term] = image,
) -> Term:
    """A convolution of 16 channels whose result lies where the image lies."""
    name = f"{size}.{stride}.{groups}.{apart}"
    w = p(f"w{name}", 16, 16 // groups, size, size)
    padding = apart * (size // 2)
    window = (stride,) * 2, (padding,) * 2, (apart,) * 2, groups
    return conv(of(), w, p(f"b{name}", 16) if bias else ZERO, *window)


def of_channels(name: str) -> Term:
    return p(name, 16, 1, 1)


ONE: dict[str, Callable[[], Term]] = {
    "3 and 1": lambda: branch(3, bias=True) + branch(1),
    "1 less 3": lambda: branch(1) * 2.0 - branch(3),
    "5, 3 and 1": lambda: branch(5) + (branch(3, bias=True) + branch(1)),
    "of every other place": lambda: branch(3, stride=2) + branch(1, stride=2),
    "in groups": lambda: branch(3, groups=4) + branch(1, groups=4),
    "with the image": lambda: branch(3) + image(),
    "in groups, with the image": lambda: image() - branch(3, groups=16),
    "with an image that is a sum": lambda: branch(3, of=summed) + summed(),
    "less an image that is a sum, scaled": lambda: (
        branch(3, groups=16, of=summed) - (summed() * of_channels("s0") + of_channels("b0"))
    ),
    "among others, with an image that is a sum": lambda: (
        (relu(image()) + branch(3, of=summed)) + (summed() + branch(1, of=summed))
    ),
    "elements apart": lambda: branch(3, apart=2) + branch(1),
    "a block of three normed branches": lambda: relu(
        (branch(3) * of_channels("s3") + of_channels("b3"))
        + (branch(1) * of_channels("s1") + of_channels("b1"))
        + (image() * of_channels("s0") + of_channels("b0"))
    ),
}
APART: dict[str, Callable[[], Term]] = {
    "other places": lambda: branch(3, stride=2) + branch(1, stride=2, groups=2),
    "elements between": lambda: branch(5) + branch(3, apart=4),
    "an image of which every other place is left": lambda: (
        branch(3, stride=2) + x(4, 16, 6, 6, name="y")
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_branches_are_one_convolution(name: str) -> None:
    g = graph(ONE[name]())
    done = optimize(g, CPU)
    found = [n for n in done.graph.nodes() if n.op == "conv" and not is_parametric(n)]
    assert len(found) == 1
    assert done.label == "reals"
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


@pytest.mark.parametrize("name", APART)
def test_branches_that_do_not_fit_stay(name: str) -> None:
    g = graph(APART[name]())
    before, after = (
        sum(n.op == "conv" and not is_parametric(n) for n in made.nodes())
        for made in (g, optimize(g, CPU).graph)
    )
    assert after == before


@pytest.mark.parametrize("factor", (1.0, 2.0, -0.5))
def test_a_map_of_a_low_rank_is_a_part_of_the_weight(factor: float) -> None:
    given = x(128, 64)
    thin = linear(linear(given, p("down", 4, 64)), p("up", 96, 4))
    g = graph((linear(given, p("w", 96, 64)) + p("b", 96)) + thin * factor)
    done = optimize(g, CPU)
    assert sum(n.op == "linear" and not is_parametric(n) for n in done.graph.nodes()) == 1
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


def test_a_derivation_has_the_steps_before_its_last() -> None:
    """The last step is found among equal forms of the whole: how these came is told, too."""
    steps = [s.rule for s in optimize(graph(ONE["a block of three normed branches"]()), CPU).steps]
    assert any(name.startswith("kernel-within-kernel") for name in steps)
    assert any(name.startswith("image-beside-its-convolution") for name in steps)


CHAINS: dict[str, Callable[[], Term]] = {
    "a block of three normed branches": ONE["a block of three normed branches"],
    "products of products": lambda: linear(
        (linear(x(32, 24), p("f", 16, 24)) + p("fb", 16)) * p("s", 16), p("g", 8, 16)
    ),
    "a part of a sum": lambda: apply(
        "slice",
        linear(x(32, 24), p("f", 16, 24)) * 0.5 - linear(relu(x(32, 24)), p("g", 16, 24)),
        axis=-1,
        start=2,
        length=4,
    ),
    "a mean of a halved sum": lambda: mean(
        (linear(x(32, 24), p("f", 16, 24)) + linear(x(32, 24), p("g", 16, 24))) / 2.0, (-1,)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_left_sides_are_equal_to_where_they_were_found(name: str) -> None:
    """So that each has its reasons: a derivation would leave them out otherwise."""
    egraph = EGraph()
    egraph.add(graph(CHAINS[name]()).roots()[0])
    saturate(egraph, RULES, Budget())
    reasons = [reason for _, reason in egraph.forest.values() if isinstance(reason, Applied)]
    assert reasons
    for reason in reasons:
        assert reason.instance is not None
        assert egraph.add(reason.instance()) == egraph.find(reason.before), reason.rule.name
