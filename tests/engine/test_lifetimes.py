"""The order of steps in which less memory is held, by backwards of several layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified

from refold.backend import graphs
from refold.backend.options import BackendOptions
from refold.ir import Node
from refold.plan.plan import Group, Plan, Step
from refold.planner import lifetimes
from refold.planner.lifetimes import in_less_memory


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def plans_of(module: nn.Module, x: torch.Tensor) -> list[Plan]:
    """Of the forward and of the backward, as they are planned."""
    found: list[Plan] = []

    def inner(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        found.append(graphs.derive(graph.graph, BackendOptions()).plan)
        return graph

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        return aot_module_simplified(graph, inputs, fw_compiler=inner, bw_compiler=inner)

    torch.compile(module, backend=backend)(x).sum().backward()
    return found


def held(plan: Plan) -> tuple[float, float]:
    return lifetimes._Lives(plan).held(range(len(plan.steps)))


def test_gradients_of_weights_do_not_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "in_less_memory", lambda plan: plan)
        _, before = plans_of(Layers(), torch.randn(1 << 15, 64, requires_grad=True))
    after = in_less_memory(before)
    assert sorted(map(id, after.steps)) == sorted(map(id, before.steps))
    (peak, mean), (peak_before, mean_before) = held(after), held(before)
    assert peak <= peak_before and mean < 0.9 * mean_before
    made: set[object] = {n for n in before.graph.nodes() if not n.inputs}
    for step in after.steps:
        read = step.inputs if isinstance(step, Group) else step.node.inputs
        waits = [n for n in read if any(n in outputs(s) for s in before.steps)]
        assert all(n in made for n in waits), "each step after those that it reads"
        made.update(outputs(step))


def outputs(step: Step) -> tuple[Node, ...]:
    return step.outputs if isinstance(step, Group) else (step.node,)


def test_an_order_that_holds_as_little_is_left() -> None:
    forward, backward = plans_of(Layers(), torch.randn(64, 64, requires_grad=True))
    for plan in (forward, backward):
        assert in_less_memory(plan) is plan, "the backend has ordered it"


def test_sums_of_large_values_that_have_nothing_in_common_are_apart() -> None:
    """A kernel of all of them would hold the gradients of all layers until the last is there."""
    _, backward = plans_of(Layers(), torch.randn(1 << 15, 64, requires_grad=True))
    columns = [g for g in backward.groups if g.family == "columns"]
    assert columns and all(len(g.reductions) == 1 for g in columns)
    _, small = plans_of(Layers(), torch.randn(64, 64, requires_grad=True))
    sums = [len(g.reductions) for g in small.groups if g.family == "columns"]
    assert len(sums) <= -(-sum(sums) // 4)  # as many each as a thread holds
