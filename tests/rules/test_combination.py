"""Linear combinations: their terms, what is left without some, and the rules about two of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from refold.devices import DeviceModel
from refold.engine import optimize
from refold.ir import OPS, Graph, Kind, Node, Output
from refold.ir.evaluate import run
from refold.ir.graph import is_parametric
from refold.ir.op import Rounding
from refold.ir.ops import ATTENTIONS
from refold.planner import PlanPricer
from refold.rules import RULES
from refold.rules.combination import MOST, Part, parts, without
from refold.rules.match import Plain, arguments, matches, replacement
from refold.rules.prove import as_terms
from refold.rules.rule import Rule, RuleError
from refold.rules.term import Term, Value, apply, conv, conv_transpose, linear, relu
from tests.engine.graphs import graph, lin, p, x

F64 = torch.float64
CPU = PlanPricer(DeviceModel.of("cpu"))
OF_TERMS = [r for r in RULES if r.terms]


def values(*roots: Node) -> list[torch.Tensor]:
    """What each root is of one set of random values of the leaves."""
    draw = torch.Generator().manual_seed(0)
    leaves = [n for r in roots for n in _leaves(r)]
    data = {
        n: torch.randn([int(d) for d in n.shape], generator=draw, dtype=F64)
        for n in dict.fromkeys(leaves)
    }
    done = run(list(roots), data, {}, F64)
    return [done[r] for r in roots]


def _leaves(root: Node) -> list[Node]:
    return [n for n in Graph((Output(root, root.shape),)).nodes() if n.op in ("input", "param")]


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.expand(b.shape), b, rtol=1e-10, atol=1e-10)


def total(found: tuple[Part, ...]) -> Node:
    made, *others = (part.value() for part in found)
    for other in others:
        made = (Value(made) + Value(other)).node
    return made


def combination(draw: random.Random, depth: int) -> Term:
    """A random tree of sums, differences and multiples of maps of two inputs, and other values."""
    how = draw.random()
    if depth == 0 or how < 0.15:
        given = x(5, 6, name=draw.choice("xy"))
        atom = draw.choice((lambda: given, lambda: relu(given), *[lambda: _map(given, draw)] * 3))
        return atom()
    if how < 0.22:
        return linear(_map(given := x(5, 6, name="x"), draw), p("u", 6, 6)) + linear(
            given, p("w0", 6, 6)
        )
    if how < 0.4:
        factor = draw.choice((2.0, -1.0, 0.5, p(f"s{draw.randrange(2)}", 6), p("one", 1)))
        inner = combination(draw, depth - 1)
        return inner * factor if draw.random() < 0.5 else factor * inner
    if how < 0.5:
        return combination(draw, depth - 1) + p("shift", 6)
    sides = combination(draw, depth - 1), combination(draw, depth - 1)
    return sides[0] + sides[1] if how < 0.75 else sides[0] - sides[1]


def _map(given: Term, draw: random.Random) -> Term:
    return linear(given, p(f"w{draw.randrange(3)}", 6, 6))


@pytest.mark.parametrize("seed", range(20))
def test_terms_add_up(seed: int) -> None:
    node = combination(random.Random(seed), 4).node
    done = values(node, total(parts(node)))
    assert close(*done)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_and_what_is_taken_add_up(seed: int) -> None:
    node = combination(random.Random(seed), 4).node
    if node.op not in ("add", "sub"):
        return
    left, right = ([q for q in parts(node) if q.path[:1] == (i,)] for i in (0, 1))
    for a, b in itertools.islice(itertools.product(left, right), 6):
        rest = without(node, a, b)
        made = total((a, b)) if rest is None else (Value(total((a, b))) + Value(rest)).node
        assert close(*values(node, made))


def test_rules_about_terms_keep_the_value_of_the_whole() -> None:
    """Every instance that is found: both sides are equal to the node at which it was found."""
    applied: set[str] = set()
    for seed in range(400):
        node = combination(random.Random(seed), 1 + seed % 3).node
        for rule in OF_TERMS:
            if node.op not in rule.roots:
                continue
            for found in itertools.islice(matches(rule, node, Plain()), 3):
                made = replacement(rule, found)
                assert made is not None
                (left,) = as_terms(rule.lhs(**arguments(rule, found)))
                old, *new = values(node, left.node, made[0])
                assert all(close(v, old) for v in new), f"{rule.name} at {node}"
                applied.add(rule.name)
    assert {r.name for r in OF_TERMS if not r.is_of_images} == applied


def test_the_others_keep_their_order() -> None:
    a, b, r, q = (x(5, 6, name=n) for n in "abrq")
    f, g = linear(a, p("f", 6, 6)), linear(b, p("g", 6, 6))
    node = ((r + f) * p("s", 6) - (q - g)).node
    first = next(t for t in parts(node) if t.atom is f.node)
    second = next(t for t in parts(node) if t.atom is g.node)
    assert without(node, first, second) is (r * p("s", 6) - q).node


def test_a_long_sum_is_a_term_of_a_longer_one() -> None:
    value = x(5, 6)
    for k in range(3 * MOST):
        value = value + relu(x(5, 6, name=f"x{k}"))
    assert 1 < len(parts(value.node)) <= MOST
    assert close(*values(value.node, total(parts(value.node))))


# --- what combinations become -------------------------------------------------------------------
Combine = Callable[[Any, Any, Any], Any]
COMBINATIONS: dict[str, Combine] = {
    "a+b": lambda a, b, c: a + b,
    "a-b": lambda a, b, c: a - b,
    "2a-3b": lambda a, b, c: 2.0 * a - 3.0 * b,
    "a-b+c": lambda a, b, c: a - b + c,
    "-a-b": lambda a, b, c: -a - b,
    "a-(b+c)/2": lambda a, b, c: a - (b + c) / 2.0,
    "0.3a+0.7b": lambda a, b, c: a * 0.3 + b * 0.7,
    "1-a-b": lambda a, b, c: 1.0 - a - b,
    "2(a-b)+c-a": lambda a, b, c: (a - b) * 2.0 + c - a,
    "lerp": lambda a, b, c: a + (b - a) * 0.3,
}


def _convolution(transposed: bool, name: str, bias: bool) -> Term:
    image = x(4, 6, 9, 9)
    w, b = p(f"{name}.w", 6, 6, 3, 3), p(f"{name}.b", 6) if bias else Value(_zero())
    window = (1, 1), (1, 1), (1, 1), 1
    return (
        conv_transpose(image, w, b, *window, (0, 0)) if transposed else conv(image, w, b, *window)
    )


def _zero() -> Node:
    from refold.ir import as_scalar

    return as_scalar(0.0, torch.float32)


MAPS: dict[str, Callable[[str], Term]] = {
    "linear": lambda name: lin(x(128, 64), name, 64, 64),
    "linear without bias": lambda name: linear(x(128, 64), p(f"{name}.w", 64, 64)),
    "conv": lambda name: _convolution(False, name, True),
    "conv without bias": lambda name: _convolution(False, name, False),
    "transposed conv": lambda name: _convolution(True, name, True),
}


def products(g: Graph) -> int:
    return sum(n.row.is_contraction and not is_parametric(n) for n in g.nodes())


@pytest.mark.parametrize("combined", COMBINATIONS)
@pytest.mark.parametrize("kind", MAPS)
def test_a_combination_of_maps_of_one_input_is_one_map(kind: str, combined: str) -> None:
    g = graph(COMBINATIONS[combined](*(MAPS[kind](name) for name in "abc")))
    done = optimize(g, CPU)
    assert products(done.graph) == 1
    assert done.label == "reals"
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


@pytest.mark.parametrize("combined", COMBINATIONS)
def test_one_map_of_several_inputs_is_one_map(combined: str) -> None:
    def siamese(name: str) -> Term:
        return lin(x(128, 64, name=f"x.{name}"), "f", 64, 64)

    g = graph(COMBINATIONS[combined](*map(siamese, "abc")))
    done = optimize(g, CPU)
    assert products(done.graph) == 1
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


def test_maps_of_several_inputs_stay_apart() -> None:
    maps = (lin(relu(x(128, 64, name=f"x.{n}")), n, 64, 64) for n in "abc")
    assert products(optimize(graph(COMBINATIONS["a-b+c"](*maps)), CPU).graph) == 3


def test_learned_factors_of_features_go_into_the_weights() -> None:
    a, b = (lin(x(128, 64), name, 64, 64) for name in "ab")
    g = graph(a * p("s", 64) - b * p("t", 64))
    done = optimize(g, CPU)
    assert products(done.graph) == 1
    assert close(*values(g.roots()[0], done.graph.roots()[0]))


def test_a_term_that_cancels_is_dropped_for_finite_values_only() -> None:
    a, b = lin(x(128, 64), "f", 64, 64), relu(lin(x(128, 64), "g", 64, 64))
    g = graph((a * 2.0 + b) - a * 2.0)
    done = optimize(g, CPU)
    assert products(done.graph) == 1
    assert done.label == "finite"
    assert "opposite-terms" in {s.rule for s in done.steps}
    strict = optimize(g, CPU, strict=True)
    assert products(strict.graph) == 2
    assert strict.label != "finite"


def test_sums_of_inputs_are_not_put_in_another_order() -> None:
    """Of values that are no products, sums among others may be exact: 1e8 - 1e8 + 1e-3."""
    a, b = x(128, 64, name="a"), x(128, 64, name="b")
    node = ((a * 3.0 + b) + a * 0.5).node
    assert not [r.name for r in OF_TERMS for _ in matches(r, node, Plain())]


# --- what follows from the op table -------------------------------------------------------------
def test_every_linear_op_has_its_rules() -> None:
    """But for pointwise arithmetic, of which combinations are made, for moves, which have rules
    for all pointwise ops, and for attention, which is one kernel."""
    names = {r.name for r in RULES}
    for op in OPS.values():
        if op.kind is Kind.POINTWISE or op.rounding is Rounding.NONE or op.name in ATTENTIONS:
            continue
        for group in op.linear_in:
            operands = [w.split("[")[0] for w in op.operands or ("x",)]
            where = "-and-".join(operands[i] for i in group)
            assert {f"{op.name}-sum-in-{where}", f"{op.name}-difference-in-{where}"} <= names
            if op.is_contraction:
                among = f"{op.name}-terms-among-others-in-{where}"
                assert {f"{op.name}-terms-in-{where}", among} <= names


@pytest.mark.parametrize(
    "lhs",
    (
        lambda a, b, s: a * s - apply("relu", b),
        lambda a, b, s: (a + s) - b,
        lambda a, b, s: linear(a, b) * s,
    ),
)
def test_a_rule_about_something_else_than_terms_is_refused(lhs: Any) -> None:
    with pytest.raises(RuleError, match="of terms, lhs must be"):
        Rule("wrong", "a b s", lhs, lambda a, b, s: a, "reals", "Why.", terms=True)
