"""Which calls of attention with dropout get operators of ours, and what these are given."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from refold.backend import attention_dropout
from refold.backend.loaded import Operator
from refold.backend.options import BackendOptions

aten: Any = torch.ops.aten
FORWARD = aten._scaled_dot_product_efficient_attention.default
BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default
OPTIONS = BackendOptions(target="cuda:sm_90")
LARGE = (8, 12, 512, 64)


class Made:
    """Operators that are asked for, in the place of those that a GPU runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operators: list[Operator] = []
        monkeypatch.setattr(attention_dropout, "define", self.define)
        monkeypatch.setattr(attention_dropout, "compile_ahead", lambda operators: list(operators))
        monkeypatch.setattr(
            attention_dropout, "trace_as", lambda operator, fake: self.fakes.append(fake)
        )
        self.fakes: list[Any] = []

    def define(self, one: Operator) -> Any:
        self.operators.append(one)

        def run(*given: Any) -> None:
            raise AssertionError

        run.__name__ = one.name
        return run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def graph(
    gradient: bool = False,
    shape: tuple[int, ...] = LARGE,
    dtype: torch.dtype = torch.float32,
    probability: float = 0.1,
    masked: bool = False,
    causal: bool = False,
    wanted: tuple[bool, ...] = (True, True, True, False),
    device: str = "cuda",
) -> torch.fx.GraphModule:
    """A call, its arguments placeholders, its results read."""
    made = torch.fx.Graph()
    mode = FakeTensorMode()

    def place(name: str, *sizes: int, dtype: torch.dtype = dtype) -> torch.fx.Node:
        node = made.placeholder(name)
        with mode:
            node.meta["val"] = torch.empty(sizes, dtype=dtype, device=device)
        return node

    q, k, v = (place(n, *shape) for n in "qkv")
    mask = place("mask", *shape[:3], shape[2]) if masked else None
    if gradient:
        given, out = place("given", *shape), place("out", *shape)
        sums = place("sums", *shape[:3], dtype=torch.float32)
        state = [place(n, dtype=torch.int64) for n in ("seed", "offset")]
        args: Any = (given, q, k, v, mask, out, sums, *state, probability, list(wanted), causal)
        call = made.call_function(BACKWARD, args)
    else:
        call = made.call_function(FORWARD, (q, k, v, mask, True, probability, causal))
    parts = [made.call_function(operator.getitem, (call, i)) for i in range(3)]
    made.output(tuple(parts))
    return torch.fx.GraphModule({}, made)


def targets(module: torch.fx.GraphModule) -> list[Any]:
    return [
        n
        for n in module.graph.nodes
        if n.op == "call_function" and n.target is not operator.getitem
    ]


@pytest.mark.parametrize("masked", [False, True])
def test_operators_are_given_what_calls_are(made: Made, masked: bool) -> None:
    for gradient in (False, True):
        module = graph(gradient, masked=masked)
        found = attention_dropout.with_own_attention(module, OPTIONS)
        (call,) = targets(found.module)
        own = found.operators[0]
        assert call.target.__name__ == own.name and own.draws is not gradient
        names = (
            ["given", "q", "k", "v", "out", "sums", "seed", "offset"]
            if gradient
            else ["q", "k", "v"]
        )
        assert [n.name for n in call.args] == names + ["mask"] * masked and not call.kwargs
        assert own.signature.count("Tensor a") == len(call.args)
        assert [n.target for n in targets(module)] == [BACKWARD if gradient else FORWARD]
        assert found.flops > 0
        with call.args[0].meta["val"].fake_mode:
            results = made.fakes[-1](*(n.meta["val"] for n in call.args))
        assert len(results) == own.results and tuple(results[0].shape) == LARGE


LEFT = {
    "nothing is dropped": {"probability": 0.0},
    "all is dropped": {"probability": 1.0},
    "16 bits": {"dtype": torch.float16},
    "few queries": {"shape": (8, 12, 8, 64)},
    "many features": {"shape": (8, 12, 512, 256)},
    "so many keys that what is kept is more than they are": {"shape": (1, 1, 65536, 8)},
    "a mask and later keys": {"masked": True, "causal": True},
    "the gradient of a mask": {"gradient": True, "masked": True, "wanted": (True,) * 4},
    "some gradients": {"gradient": True, "wanted": (True, False, True, False)},
    "no GPU": {"device": "cpu"},
}


@pytest.mark.parametrize("what", LEFT)
def test_others_stay_pytorchs(made: Made, what: str) -> None:
    module = graph(**LEFT[what])  # type: ignore[arg-type]
    found = attention_dropout.with_own_attention(module, OPTIONS)
    assert found.module is module and not found.operators and not made.operators


def test_equal_calls_are_one_operator(made: Made) -> None:
    module = graph()
    (call,) = targets(module)
    with module.graph.inserting_before(module.graph.output_node()):
        again = module.graph.call_function(FORWARD, call.args)
        again.meta = dict(call.meta)
        module.graph.call_function(operator.getitem, (again, 0))
    found = attention_dropout.with_own_attention(module, OPTIONS)
    assert len(targets(found.module)) == 2 and len(found.operators) == 1
