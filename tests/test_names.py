"""Operators that PyTorch has under several names are read under each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from refold.capture import capture
from refold.capture.aten import HANDLERS, NAMES

PAIRS = [(name, other) for name, others in NAMES.items() for other in others]


def forms(name: str) -> set[tuple[tuple[str, str, str], ...]]:
    """The arguments of each overload that writes nothing: their names, types and defaults."""
    packet = getattr(torch.ops.aten, name)
    schemas = (getattr(packet, each)._schema for each in packet.overloads())
    return {
        tuple((a.name, str(a.type), str(a.default_value)) for a in s.arguments)
        for s in schemas
        if not s.is_mutable
    }


@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_another_name_takes_the_same_arguments(name: str, other: str) -> None:
    assert forms(other) <= forms(name)
    assert HANDLERS[other] is HANDLERS[name]


@pytest.mark.parametrize(("name", "other"), [("mul", "div"), ("sub", "mul"), ("clamp", "abs")])
def test_other_arguments_are_told(name: str, other: str) -> None:
    assert not forms(other) <= forms(name)


class Called(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x) * 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.multiply(torch.absolute(x), torch.negative(x)),
        lambda x: torch.divide(torch.subtract(x, 0.5, alpha=2), torch.clip(x, 1, 2)),
        lambda x: torch.where(torch.greater_equal(x, 0), torch.special.expit(x), x),
        lambda x: torch.special.softmax(torch.concatenate([x, x], 1), 1),
        lambda x: (x + 1).multiply_(3).subtract_(1),
    ],
)
def test_what_is_named_otherwise_is_no_call(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    graph = capture(Called(function), [torch.randn(4, 6)], training=False).graph
    assert "aten" not in {n.op for n in graph.nodes()}
