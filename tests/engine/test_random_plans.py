"""Random graphs: their plans, run by PyTorch alone in the memory that they choose, give the graphs'
values. All is float64, so that a difference is a mistake and not a rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from refold.devices import DeviceModel
from refold.ir import Graph, Node, leaf
from refold.ir.evaluate import evaluate
from refold.ir.node import as_scalar, rebuild
from refold.plan import Storage
from refold.plan.buffers import InPlaceOf, ViewOf
from refold.plan.reference import run_plan
from refold.planner import make_plan
from refold.rules.term import Term, apply, linear, mean, slice

from .graphs import N, data, graph, lin, p, x
from .test_random import graphs

SEEN: set[type] = set()  # the kinds of places that values had


def in_float64(g: Graph) -> Graph:
    done: dict[Node, Node] = {}
    for n in g.nodes():
        if n.op == "scalar" and n.is_float:
            done[n] = as_scalar(n["value"], torch.float64)
        elif n.op == "cast" and n.inputs[0].is_float:
            done[n] = done[n.inputs[0]]
        elif n.row.is_named and n.is_float:
            done[n] = leaf(n.op, n.shape, torch.float64, **dict(n.attrs))
        else:
            done[n] = rebuild(n, tuple(done[i] for i in n.inputs))
    return g.with_roots(done[r] for r in g.roots())


@pytest.mark.parametrize("device", ["cpu", "cuda:sm_90"])
def test_plans_give_what_graphs_mean(device: str) -> None:
    SEEN.clear()

    @settings(
        max_examples=250,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(graphs())
    def check(terms: list[Term]) -> None:
        g = in_float64(graph(tuple(terms)))
        plan = make_plan(g, Storage(real=torch.float64), DeviceModel.of(device))
        SEEN.update(map(type, plan.buffers.places.values()))
        sizes = {"n": 5}
        values = {k: v.double() if v.is_floating_point() else v for k, v in data(g, sizes).items()}
        leaves = {n: values[n["name"]] for n in plan.graph.nodes() if n.row.is_named}
        for a, b in zip(run_plan(plan, leaves, sizes), evaluate(g, values, sizes), strict=True):
            known = b.isfinite()
            scale = b[known].abs().max().item() if known.any() else 0.0
            assert ((a - b)[known].abs() <= 1e-9 * (1 + scale)).all()

    check()
    assert {InPlaceOf, ViewOf} <= SEEN


def test_a_reduction_of_one_element_before_a_column_is_planned() -> None:
    """One axis of one element is summed, and nothing stands behind the rows."""
    g = in_float64(graph((mean(x(N, 1, name="z"), (-3,)),)))
    plan = make_plan(g, Storage(real=torch.float64))
    values = {"z": torch.randn(5, 1, dtype=torch.float64)}
    leaves = {n: values[n["name"]] for n in plan.graph.nodes() if n.row.is_named}
    (got,) = run_plan(plan, leaves, {"n": 5})
    assert torch.equal(got.flatten(), values["z"].flatten())


def test_an_epilogue_that_waits_for_a_later_product_is_planned() -> None:
    """Gates of a recurrence: the input's product adds the state's, which has its turn later, from
    what a kernel makes that could compute the next state, too, and would wait for itself then."""
    h = c = x(N, 4, name="h")
    for t in range(3):
        gates = lin(x(N, 6, name=f"x{t}"), "w", 6, 16) + linear(h, p("u", 16, 4))
        opened = apply("sigmoid", gates)
        i, f, o = (slice(opened, -1, 4 * k, 4) for k in (0, 1, 3))
        c = f * c + i * apply("tanh", slice(gates, -1, 8, 4))
        h = o * apply("tanh", c)
    g = in_float64(graph(h))
    plan = make_plan(g, Storage(real=torch.float64), DeviceModel.of("cpu"))
    values = {k: v.double() for k, v in data(g, {"n": 5}).items()}
    leaves = {n: values[n["name"]] for n in plan.graph.nodes() if n.row.is_named}
    (got,) = run_plan(plan, leaves, {"n": 5})
    torch.testing.assert_close(got, evaluate(g, values, {"n": 5})[0])
