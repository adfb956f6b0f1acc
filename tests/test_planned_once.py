"""Graphs of one search that are the same when they are lowered have one plan."""

from __future__ import annotations

import torch

from refold.capture import capture
from refold.devices import DeviceModel
from refold.planner import PlanPricer
from refold.planner.lower import lower
from refold.planner.make import make_plan


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).softmax(-1) * 2


def test_graphs_that_are_lowered_alike_are_planned_once(monkeypatch):
    graph = capture(Model(), (torch.randn(8, 32),), training=False).graph
    other, _ = lower(graph)
    assert other.roots() != graph.roots()
    pricer = PlanPricer(DeviceModel.of("cpu"))
    plan = pricer.plan(graph, {})
    assert pricer.plan(other, {}) is plan
    assert pricer.price(graph, {}) == pricer.price(other, {})
    assert str(plan) == str(make_plan(other, device=pricer.device))
    # what is stored otherwise is planned otherwise
    known = dict.fromkeys(graph.nodes(), torch.bfloat16)
    half = PlanPricer(DeviceModel.of("cpu"), stored=known, every=torch.bfloat16)
    assert half.plan(graph, {}) is not half.plan(other, {})
