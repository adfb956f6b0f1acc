"""Bounds: what is known, and that nothing more is claimed."""

import math

import pytest
import torch

from refold.ir.evaluate import run
from refold.ir.facts import bounds
from refold.ir.shapes import RANK
from refold.rules.term import (
    Term,
    abs,
    apply,
    avg_pool,
    constant,
    exp,
    log,
    max,
    maximum,
    mean,
    minimum,
    relu,
    softmax,
    sqrt,
    sum,
    var,
)

from ..engine.graphs import N, data, graph, p, x

INF = math.inf
X = x(N, 4)
CASES: dict[str, tuple[Term, tuple[float, float]]] = {
    "input": (X, (-INF, INF)),
    "parameter": (p("w", 4), (-INF, INF)),
    "number": (constant(2.5, X, (1,) * RANK), (2.5, 2.5)),
    "relu": (relu(X), (0.0, INF)),
    "sum of relu": (sum(relu(X), (-2,)), (0.0, INF)),
    "minus relu": (relu(X) * -2.0, (-INF, 0.0)),
    "square": (X * X, (0.0, INF)),
    "variance": (var(X, (-1,), correction=0) + 1e-5, (1e-5, INF)),
    "softmax": (softmax(X, -1), (0.0, 1.0)),
    "sum of softmax": (sum(softmax(X, -1), (-1,)), (0.0, 4.0)),
    "clamp": (minimum(maximum(X, -1.0), 1.0), (-1.0, 1.0)),
    "max of abs": (max(abs(X), (-1,)), (0.0, INF)),
    "padded pool": (avg_pool(exp(X) + 1.0, 2, 2, 1, True), (0.0, INF)),
    "difference": (X - relu(X), (-INF, INF)),
    "quotient": (relu(X) / (exp(X) + 1.0), (0.0, INF)),
    "log": (log(X), (-INF, INF)),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds(name: str) -> None:
    term, expected = CASES[name]
    assert bounds(term.node) == pytest.approx(expected)


@pytest.mark.parametrize(
    "term",
    [
        apply(op, apply("sigmoid", X) * 4.0 - 2.0)
        for op in ("exp", "tanh", "gelu", "silu", "floor", "hardsigmoid", "erf", "neg", "selu")
    ]
    + [mean(sqrt(abs(X)), (-2,)), sum(exp(relu(X)), (-1,))],
    ids=repr,
)
def test_bounds_hold(term: Term) -> None:
    low, high = bounds(term.node)
    sizes = {"n": 50}
    values = data(graph(term), sizes)
    leaves = {n: values[n["name"]] * 3 for n in graph(term).nodes() if n.op == "input"}
    result = run([term.node], leaves, sizes, torch.float64)[term.node]
    assert low <= result.min().item()
    assert result.max().item() <= high
