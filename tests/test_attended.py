"""Attention that models write by hand is found where kernels take it, and nothing else is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from refold import pipeline
from refold.capture.aot import read_aot
from refold.derive import Options, derive
from refold.ir.ops import ATTENTIONS
from refold.plan import Group, Plan
from refold.plan.reference import run_plan

N, S, D = 2, 20, 8
ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention.default


class Heads(nn.Module):
    """Queries, keys and values [batch, heads, tokens, features], and what becomes of them."""

    def __init__(self, of: Callable[..., Any], features: int) -> None:
        super().__init__()
        self.of = of
        self.features = features
        self.register_buffer("later", torch.ones(S, S, dtype=torch.bool).triu(1))

    def forward(self, x: torch.Tensor) -> Any:
        whole = x.view(x.shape[0], x.shape[1], 3, 2, self.features).unbind(2)
        return self.of(self, *(t.transpose(1, 2) for t in whole))


def plan_for(
    of: Callable[..., Any], target: str = "cuda:sm_90", features: int = D, tokens: int = S
) -> tuple[nn.Module, torch.Tensor, Plan | None]:
    torch.manual_seed(0)
    module = Heads(of, features).eval()
    x = torch.randn(N, tokens, 6 * features)
    _, device = pipeline.target_for(target)
    (found,) = derive(module, [x], device, Options(measure=False, accuracy=False))
    return module, x, found.mode.plan


def found_in(plan: Plan | None) -> list[str]:
    groups = [s for s in plan.steps if isinstance(s, Group)] if plan is not None else []
    return [n.op for g in groups for n in g.nodes if n.op in ATTENTIONS]


def weights(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * 0.25).softmax(-1)


FOUND: dict[str, tuple[Callable[..., Any], str]] = {
    "a factor": (lambda m, q, k, v: weights(q, k) @ v, "softmax_attention"),
    "no factor": (lambda m, q, k, v: (q @ k.mT).softmax(-1) @ v, "softmax_attention"),
    "a quotient": (lambda m, q, k, v: (q @ k.mT / 4).softmax(-1) @ v, "softmax_attention"),
    "a mask that fills": (
        lambda m, q, k, v: (q @ k.mT * 0.25).masked_fill(m.later, -torch.inf).softmax(-1) @ v,
        "softmax_filled_attention",
    ),
    "a mask that keeps": (
        lambda m, q, k, v: torch.where(~m.later, q @ k.mT, -1e9).softmax(-1) @ v,
        "softmax_filled_attention",
    ),
    "a mask that is added": (
        lambda m, q, k, v: (q @ k.mT * 0.25 + m.later * -1e9).softmax(-1) @ v,
        "softmax_masked_attention",
    ),
    "batches and heads joined": (
        lambda m, q, k, v: torch.bmm(
            torch.bmm(q.reshape(-1, S, D), k.reshape(-1, S, D).mT).softmax(-1),
            v.reshape(-1, S, D),
        ).view(-1, 2, S, D),
        "softmax_attention",
    ),
    "a factor of the masked": (
        lambda m, q, k, v: ((q @ k.mT + m.later) * 2.0).softmax(-1) @ v,
        "softmax_masked_attention",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_attention_by_hand_is_found_and_means_the_same(name: str) -> None:
    of, op = FOUND[name]
    module, x, plan = plan_for(of)
    assert found_in(plan) == [op]
    assert plan is not None
    given = {"x": x, "later": module.later}
    leaves = {n: given[n["name"]] for n in plan.graph.nodes() if n.row.is_named}
    sizes = {"s0": N, "s1": S}  # those that vary, if they do
    (made,) = run_plan(plan, leaves, sizes)
    torch.testing.assert_close(made.reshape(-1), module(x).reshape(-1))


OTHERS: dict[str, Callable[..., Any]] = {
    "heads that share keys": lambda m, q, k, v: weights(q, k[:, :1]) @ v,
    "heads that share values": lambda m, q, k, v: weights(q, k) @ v[:, :1],
    "batches that share queries": lambda m, q, k, v: weights(q[:1], k) @ v,
    "weights of heads side by side": lambda m, q, k, v: (
        weights(q, k).reshape(-1, 2 * S, S) @ v[:, 0]
    ),
    "weights that are a result": lambda m, q, k, v: ((w := weights(q, k)) @ v, w),
    "scores that are read twice": lambda m, q, k, v: (
        (s := q @ k.mT).softmax(-1) @ v + s.amax(-1, keepdim=True)
    ),
    "a softmax over queries": lambda m, q, k, v: (q @ k.mT).softmax(-2) @ v,
    "two masks": lambda m, q, k, v: (
        (q @ k.mT + m.later * 0.5).masked_fill(m.later, -1e9).softmax(-1) @ v
    ),
    "something between": lambda m, q, k, v: (q @ k.mT).tanh().softmax(-1) @ v,
    "weights that are changed": lambda m, q, k, v: (weights(q, k) * 2.0 + 1.0) @ v,
}


def test_a_batch_of_one_may_have_a_mask() -> None:
    of, op = FOUND["a mask that is added"]
    assert found_in(plan_for(lambda m, *heads: of(m, *(t[:1] for t in heads)))[2]) == [op]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_attention_stays(name: str) -> None:
    assert found_in(plan_for(OTHERS[name])[2]) == []


@pytest.mark.parametrize(
    ("target", "features", "tokens"),
    [("cpu", D, S), ("cuda:sm_80", D, S), ("cuda:sm_90", 136, S), ("cuda:sm_90", D, 15)],
)
def test_where_no_kernel_takes_it_nothing_changes(target: str, features: int, tokens: int) -> None:
    of = lambda m, q, k, v: weights(q, k) @ v
    assert found_in(plan_for(of, target, features, tokens)[2]) == []


# --- PyTorch's operator for GPUs ----------------------------------------------------------------
def attention_graph(gradients: bool, index: int) -> torch.fx.Graph:
    """What `torch.compile` writes of attention for a GPU, one of its results being the graph's."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        given = []
        for name in "qkv":
            place = graph.placeholder(name)
            place.meta["val"] = torch.empty(N, S, 2, D)
            moved = graph.call_function(torch.ops.aten.permute.default, (place, [0, 2, 1, 3]))
            moved.meta["val"] = place.meta["val"].permute(0, 2, 1, 3)
            given.append(moved)
        call = graph.call_function(ATTENTION, (*given, None, gradients))
        call.meta["val"] = ATTENTION(*(g.meta["val"] for g in given), None, gradients)
        out = graph.call_function(operator.getitem, (call, index))
        out.meta["val"] = call.meta["val"][index]
        graph.output((out,))
    return graph


def test_what_attention_keeps_for_gradients_is_read_where_it_is_wanted() -> None:
    ops = {n.op for n in read_aot(attention_graph(False, 0)).graph.nodes()}
    assert "attention" in ops and "aten" not in ops
    ops = {n.op for n in read_aot(attention_graph(True, 1)).graph.nodes()}
    assert "attention" not in ops and "aten" in ops
