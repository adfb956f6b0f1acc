"""The e-graph by itself: congruence, classes, reasons; and what it must not claim."""

import pytest

from refold.devices import DeviceModel
from refold.engine import optimize
from refold.engine.egraph import EGraph
from refold.engine.saturate import Budget, saturate
from refold.planner import PlanPricer
from refold.rules import RULES, Rule
from refold.rules.term import Term, apply, exp, linear, max, relu, softmax, sum

from .graphs import N, graph, p, x

BY_NAME = {r.name: r for r in RULES}
TWICE = BY_NAME["relu-twice"]


def graph_of(*terms: Term) -> EGraph:
    egraph = EGraph()
    for t in terms:
        egraph.add(t.node)
    return egraph


def same(egraph: EGraph, a: Term, b: Term) -> bool:
    return egraph.find(a.node) == egraph.find(b.node)


def test_equal_inputs_make_equal_outputs() -> None:
    a, b = x(N, 4), x(N, 4, name="y")
    egraph = graph_of(exp(a), exp(b), relu(a))
    assert not same(egraph, exp(a), exp(b))
    egraph.union(a.node, b.node, TWICE)
    assert same(egraph, exp(a), exp(b))
    assert not same(egraph, exp(a), relu(a))


def test_congruence_reaches_all_readers_and_what_comes_later() -> None:
    a, b = x(N, 4), x(N, 4, name="y")
    egraph = graph_of(exp(exp(exp(a))), exp(exp(b)))
    egraph.union(a.node, b.node, TWICE)
    egraph.add(exp(exp(exp(b))).node)
    assert same(egraph, exp(exp(exp(a))), exp(exp(exp(b))))


def test_sums_and_products_are_the_same_either_way_round() -> None:
    a, b = x(N, 4), x(N, 4, name="y")
    egraph = graph_of(a + b, b + a, a - b, b - a)
    assert same(egraph, a + b, b + a)
    assert not same(egraph, a - b, b - a)


def test_parameters_are_leaves_that_still_obey_congruence() -> None:
    w, v = p("w", 4, 4), p("v", 4, 4)
    egraph = graph_of(linear(x(N, 4), exp(w)), linear(x(N, 4), exp(v)))
    assert egraph.children(exp(w).node) == ()
    egraph.union(w.node, v.node, TWICE)
    assert same(egraph, linear(x(N, 4), exp(w)), linear(x(N, 4), exp(v)))


def test_a_value_that_becomes_parametric_keeps_its_class() -> None:
    # the softmax over one element is one, so its product with a parameter is a parameter
    y = linear(softmax(sum(exp(x(N, 4)), (-2, -1)), -1), p("w", 1, 1))
    assert optimize(graph(y), PlanPricer(DeviceModel.of("cpu"))).independent_outputs == (0,)


def test_proof_names_the_rules_and_nothing_else() -> None:
    a = x(N, 4)
    start, end = exp(relu(relu(a))), exp(relu(a))
    egraph = graph_of(start)
    saturate(egraph, RULES, Budget())
    egraph.add(end.node)
    assert same(egraph, start, end)
    assert [rule.name for _, _, rule in egraph.proof([(start.node, end.node)])] == ["relu-twice"]
    assert list(egraph.proof([(start.node, start.node)])) == []


def test_false_equalities_are_not_found() -> None:
    a = x(N, 4)
    egraph = graph_of(max(apply("gelu", a), (-1,)), apply("gelu", max(a, (-1,))), sum(a, (-1,)))
    saturate(egraph, RULES, Budget())
    assert not same(egraph, max(apply("gelu", a), (-1,)), apply("gelu", max(a, (-1,))))


@pytest.mark.parametrize(
    ("budget", "most"),
    [(Budget(nodes=100), 200), (Budget(attempts=50), 90), (Budget(instances=20), 33)],
)
def test_the_budget_stops_growth(budget: Budget, most: int) -> None:
    v = x(N, 8)
    for i in range(12):
        v = linear(v, p(f"w{i}", 8, 8))
    grow = Rule(
        "grow", "x w", lambda x, w: linear(x, w), lambda x, w: linear(x, exp(w)), "reals", "No."
    )
    egraph = graph_of(v)
    saturate(egraph, (grow,), budget)
    assert 13 < egraph.dynamic <= most
