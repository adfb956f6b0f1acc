"""What the epilogue of a product reads element by element is computed in it, not stored before."""

from __future__ import annotations

import torch

from refold.ir import Graph, Node, Output, as_scalar, leaf, make
from refold.ir.shapes import pad
from refold.plan import Group
from refold.planner import make_plan


def value(name: str, *shape: int) -> Node:
    return leaf("input", shape, torch.float32, name=name, index=0)


def slope(x: Node) -> Node:
    """1 - tanh(x)^2 + x tanh(x): values that are read more than once."""
    y = make("tanh", x)
    one = as_scalar(1.0, torch.float32)
    return make("add", make("sub", one, make("square", y)), make("mul", x, y))


def groups(*roots: Node) -> list[Group]:
    plan = make_plan(Graph(tuple(Output(r, r.shape) for r in roots)))
    return [s for s in plan.steps if isinstance(s, Group)]


def scaled(by: Node) -> Node:
    shape = (2, 12, 48)
    return make(
        "mul", make("linear", value("x", 2, 12, 32), value("w", 48, 32)), reshaped(by, shape)
    )


def reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    return x if x.shape == pad(shape) else make("reshape", x, shape=pad(shape))


def test_a_derivative_is_computed_where_a_gradient_is_multiplied_by_it() -> None:
    (group,) = groups(scaled(slope(value("h", 2, 12, 48))))
    assert group.family == "matmul"
    assert {"tanh", "linear"} <= {n.op for n in group.nodes}


def test_so_is_one_of_another_shape() -> None:
    (group,) = groups(scaled(slope(value("h", 24, 48))))
    assert {"tanh", "linear"} <= {n.op for n in group.nodes}


def test_what_the_product_multiplies_lies_in_memory() -> None:
    """A gate, or a residual connection, of a square layer: the value is a side, too."""
    for op in ("mul", "add"):
        x = make("tanh", value("x", 24, 48))
        product = make("linear", x, value("w", 48, 48))
        made, multiplied = groups(make(op, make("sigmoid", product), x))
        assert [n.op for n in made.nodes] == ["tanh"] and x in multiplied.inputs
        assert "tanh" not in {n.op for n in multiplied.nodes}


def test_what_others_read_is_stored_once() -> None:
    of = slope(value("h", 2, 12, 48))
    assert sorted(g.family for g in groups(scaled(of), of)) == ["matmul", "pointwise"]
    inner = make("tanh", value("h", 24, 48))
    both = groups(scaled(make("square", inner)), make("exp", make("sum", inner, axes=(-1,))))
    assert len(both) > 1 and all(
        "linear" not in {n.op for n in g.nodes} or "tanh" not in {n.op for n in g.nodes}
        for g in both
    )


def test_what_follows_from_the_product_is_its_own() -> None:
    product = make("linear", value("x", 2, 12, 32), value("w", 48, 32))
    top = make("max", product, axes=(-1,))
    found = groups(make("mul", product, make("exp", make("sub", product, top))))
    assert sum("linear" in {n.op for n in g.nodes} for g in found) == 1
