"""Random graphs: optimize() keeps their values, and NaN where the result still reads the input."""

from __future__ import annotations

import traceback

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.cost import DeviceModel
from refold.engine import optimize
from refold.ir import OPS
from refold.ir.evaluate import evaluate
from refold.rules.term import (
    Term,
    apply,
    avg_pool,
    cut,
    join,
    linear,
    logsumexp,
    max,
    mean,
    min,
    reshape,
    softmax,
    sum,
    turn,
    var,
)

from .graphs import N, data, graph, p, x

WIDTHS = (1, 4, 6)
SMOOTH = ("relu", "gelu", "tanh", "sigmoid", "abs", "square", "neg", "silu", "floor")
REDUCERS = {"sum": sum, "mean": mean, "max": max, "min": min, "logsumexp": logsumexp}
KINDS = (
    *("linear", "linear", "scale", "shift", "unary", "reduce", "binary", "number", "softmax"),
    *("var", "pool", "slice", "join", "reshape", "turn", "centre"),
)
SEEN: set[str] = set()  # the kinds of which a value was made
AXES = ((-1,), (-2,), (-2, -1), (-3,))


@st.composite
def graphs(draw: st.DrawFn) -> list[Term]:
    """Up to fourteen ops over two inputs and shared parameters; one to three outputs."""
    values: list[Term] = [x(N, 4), x(N, 6, name="y"), x(N, 1, name="z")]
    for _ in range(draw(st.integers(2, 14))):
        kind = draw(st.sampled_from(KINDS))
        try:
            values.append(_next(kind, draw, values))
        except ValueError as error:
            if traceback.extract_tb(error.__traceback__)[-1].filename == __file__:
                raise  # a mistake here, not an op that does not take these shapes
            continue
        SEEN.add(kind)
    count = draw(st.integers(1, 3))
    return values[-count:]


def _next(kind: str, draw: st.DrawFn, values: list[Term]) -> Term:
    v = draw(st.sampled_from(values[-5:]))
    width = v.shape[-1]
    if kind == "linear":
        m = draw(st.sampled_from(WIDTHS))
        return linear(v, p(f"w{width}_{m}_{draw(st.integers(0, 1))}", m, width))
    if kind in ("scale", "shift"):
        name, size = draw(st.sampled_from((("c", width), ("one", 1))))
        c = p(f"{name}{size}_{draw(st.integers(0, 1))}", size)
        return v * c if kind == "scale" else v + c
    if kind == "unary":
        return apply(draw(st.sampled_from(SMOOTH)), v)
    if kind == "reduce":
        return REDUCERS[draw(st.sampled_from(sorted(REDUCERS)))](v, draw(st.sampled_from(AXES)))
    if kind == "binary":
        op = draw(st.sampled_from(("add", "sub", "mul", "maximum", "minimum")))
        return apply(op, v, draw(st.sampled_from(values)))
    if kind == "number":
        number = draw(st.sampled_from((-2.0, -1.0, 0.0, 0.5, 1.0, 3.0)))
        return apply(draw(st.sampled_from(("add", "mul", "maximum", "sub"))), v, number)
    if kind == "softmax":
        return softmax(v, -1)
    if kind == "var":
        return var(v, draw(st.sampled_from(AXES[:2])), correction=0)
    if kind == "pool":
        return avg_pool(v, 2, 2, draw(st.integers(0, 1)), draw(st.booleans()))
    if kind == "slice" and isinstance(width, int):
        return cut(v, -1, draw(st.integers(0, 2)), draw(st.integers(1, 3)))
    if kind == "join":
        return join(v, draw(st.sampled_from(values)), -1)
    if kind == "reshape":
        *front, a, b, width = v.shape
        return reshape(v, (*front, b, a, width))
    if kind == "turn":
        return turn(v)
    return v - mean(v, draw(st.sampled_from(AXES[:2])))


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(graphs(), st.booleans())
def test_values_are_kept(terms: list[Term], strict: bool) -> None:
    g = graph(tuple(terms))
    done = optimize(g, DeviceModel.of("cpu"), strict=strict)
    assert done.cost_after <= done.cost_before * (1 + 1e-9)
    for seed, sizes in enumerate(({"n": 2}, {"n": 5})):
        values = data(g, sizes, seed)
        old = evaluate(g, values, sizes, torch.float64)
        new = evaluate(done.graph, values, sizes, torch.float64)
        for a, b in zip(old, new, strict=True):
            assert a.shape == b.shape
            known = a.isfinite()
            scale = a[known].abs().max().item() if known.any() else 0.0
            assert ((a - b)[known].abs() <= 1e-7 * (1 + scale)).all()
    _check_nan(g, done, strict)


def _check_nan(g, done, strict: bool) -> None:
    sizes = {"n": 3}
    values = data(g, sizes)
    for name in ("x", "y", "z"):
        if name in values:
            values[name].view(-1)[0] = float("nan")
    old = evaluate(g, values, sizes, torch.float64)
    new = evaluate(done.graph, values, sizes, torch.float64)
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if i not in done.independent_outputs:
            assert b.isnan().any() or not a.isnan().any()
        if strict:
            assert not (a.isnan() & ~b.isnan()).any()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(graphs())
def _draw_only(terms: list[Term]) -> None:
    assert terms


def test_every_kind_of_node_occurs() -> None:
    SEEN.clear()
    _draw_only()
    assert set(KINDS) == SEEN


def test_the_words_exist() -> None:
    assert set(SMOOTH) <= set(OPS)
