"""The order of steps in which less memory is held, and what no call keeps for the next."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from refold.backend import graphs
from refold.backend.loaded import load
from refold.backend.options import BackendOptions
from refold.ir import Node
from refold.plan.memory import source
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


def plans_of(module: nn.Module, x: torch.Tensor, hopper: bool = False) -> list[Plan]:
    """Of the forward and of the backward, as they are planned."""
    found: list[torch.fx.Graph] = []
    options = BackendOptions(target="cuda:sm_90") if hopper else BackendOptions()
    decompositions = select_decomp_table() if hopper else {}

    def inner(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        found.append(as_on_a_gpu(graph.graph) if hopper else graph.graph)
        return graph

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        return aot_module_simplified(
            graph,
            inputs,
            inner,
            bw_compiler=inner,
            decompositions=decompositions,
            partition_fn=min_cut_rematerialization_partition,
        )

    torch.compile(module, backend=backend)(x).sum().backward()
    return [graphs.derive(graph, options).plan for graph in found]


def as_on_a_gpu(graph: torch.fx.Graph) -> torch.fx.Graph:
    """The same graph of tensors that are said to lie on a GPU."""
    made = torch.fx.Graph()
    made.output(made.graph_copy(graph, {}))
    mode = FakeTensorMode()

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="cuda"
            )

    for node in made.nodes:
        node.meta = {"val": pytree.tree_map(moved, node.meta.get("val"))}
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    return made


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
    assert_in_order(after)


class Normed(nn.Module):
    """The backward of each layer begins with what it computes of the saved values again."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (64, 256, 256, 256, 64)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(map(nn.BatchNorm1d, sizes[1:]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.gelu(norm(layer(x)))
        return x


def test_what_takes_memory_runs_as_late_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1 << 12, 64)
    _, late = plans_of(Normed(), x, hopper=True)
    monkeypatch.setattr(lifetimes._Lives, "_late", lambda self, order: order)
    _, early = plans_of(Normed(), x, hopper=True)
    (peak, _), (peak_early, _) = held(late), held(early)
    assert peak < 0.9 * peak_early
    assert_in_order(late)


def assert_in_order(plan: Plan) -> None:
    """Each step comes after those that it reads."""
    made: set[Node] = set()
    every = {n for step in plan.steps for n in outputs(step)}
    for step in plan.steps:
        read = step.inputs if isinstance(step, Group) else step.node.inputs
        assert made.issuperset(every.intersection(map(source, read)))
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


class Marked(nn.Module):
    """Gradients of a loss by classes are written into zeros, of which a call makes its own."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        places = torch.full((x.shape[0], self.head.out_features), 0.25)
        return self.head(x).sin() * places.scatter(1, labels, -1.0)


@pytest.mark.parametrize(("classes", "kept"), [(4096, False), (16, True)])
def test_large_memory_of_one_number_is_not_kept_between_calls(classes: int, kept: bool) -> None:
    module, x = Marked(classes), torch.randn(128, 16)
    labels = torch.randint(0, classes, (128, 1))
    given = {"x": x, "labels": labels, **dict(module.named_parameters())}

    def function(*values: torch.Tensor) -> list[torch.Tensor]:
        named = dict(zip(given, values, strict=True))
        inputs = named.pop("x"), named.pop("labels")
        return [torch.func.functional_call(module, named, inputs)]

    with torch.no_grad():
        graph = make_fx(function, tracing_mode="fake")(*given.values())
        text = graphs.derive(graph.graph, BackendOptions()).text()
        assert ("folded = _refold_constant()" in text) == kept
        assert ("folded = torch.full((128, 4096), 0.25" in text) != kept
        (found,), (wanted,) = load(text)([*given.values()]), function(*given.values())
    torch.testing.assert_close(found, wanted)
