"""A bad declaration fails when it is declared, and says what is wrong."""

import pytest

from refold.rules import Rule, RuleError
from refold.rules.term import apply, linear, relu, sum


def declare(signature="x", lhs=None, rhs=None, exact="bits", why="Because.", **more) -> Rule:
    lhs = lhs or (lambda x: relu(relu(x)))
    rhs = rhs or (lambda x: relu(x))
    return Rule("a-rule", signature, lhs, rhs, exact, why, **more)


def test_a_good_one() -> None:
    assert declare().pattern.op == "relu"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"exact": "roughly"}, "exact must be one of"),
        ({"why": "because"}, "why must be one sentence"),
        ({"signature": "x y"}, "lhs takes"),
        ({"signature": "X"}, "expected name"),
        ({"signature": "x[N,?]"}, "expected sizes such as"),
        ({"signature": "x[N,C,...]"}, "as many as @strides"),
        ({"signature": "x @colour"}, "no op has an attribute"),
        ({"lhs": lambda x: apply("frobnicate", x)}, "no op 'frobnicate'"),
        ({"lhs": lambda x: apply("linear", x)}, "takes 2 inputs"),
        ({"lhs": lambda x: apply("sum", x)}, "takes the attributes"),
        ({"lhs": lambda x: x}, "lhs must apply an op"),
        ({"lhs": lambda x: max(x)}, "'max', which is not defined here"),
        ({"rhs": lambda x: frobnicate(x)}, "'frobnicate', which is not defined"),  # noqa: F821
        ({"rhs": lambda y: y}, "rhs takes"),
        (
            {"signature": "x y", "lhs": lambda x, y: relu(x), "rhs": lambda x, y: y},
            "does not bind",
        ),
        ({"where": lambda y: True}, "where takes"),
    ],
)
def test_a_bad_one(bad, message) -> None:
    with pytest.raises(RuleError, match=message):
        declare(**bad)


def test_a_pattern_has_no_shape() -> None:
    with pytest.raises(RuleError, match="is a pattern"):
        declare("x @axes", lhs=lambda x, axes: sum(x, (x.shape[-1],)), rhs=lambda x, axes: x)


def test_two_left_sides() -> None:
    rule = declare(
        "x w! v!",
        lhs=lambda x, w, v: (linear(x, w), linear(x, v)),
        rhs=lambda x, w, v: (linear(x, w), linear(x, v)),
    )
    assert len(rule.patterns) == 2
