"""The page's errors by stage: an error that one step makes is shown at that step."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import pages
from refold import pipeline
from refold.accuracy.samples import samples_of
from refold.capture import Example, widen
from refold.derive import Options, derive
from refold.ir import make
from refold.ir.graph import Graph
from refold.ir.node import as_scalar
from refold.plan import Group, reference
from refold.planner import make_plan
from refold.report.pages.stages import StageError, numbered, stage_errors, worst

DEEP = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(24, 40), nn.Linear(40, 24), nn.Linear(24, 8)
        self.norm = nn.LayerNorm(40)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.tanh(self.norm(self.a(x))))))


def get_inputs():
    return [torch.rand(32, 24)]
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(24, 40), nn.Linear(40, 24), nn.Linear(24, 8)
        self.norm = nn.LayerNorm(40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.c(torch.relu(self.b(torch.tanh(self.norm(self.a(x))))))
        return y


def staged(graph=None):
    """The model's plan, and its stages' errors; graph: another one to plan than what follows."""
    torch.manual_seed(0)
    module, inputs = Net(), [torch.rand(32, 24)]
    _, device = pipeline.target_for("cpu", "ieee")
    d = derive(module, inputs, device, Options(accuracy=False))[0]
    before = widen(d.mode.captured.graph).graph
    samples = samples_of(module, Example.of(inputs), d.mode.captured, before)
    plan = d.mode.plan if graph is None else make_plan(graph(d.optimized.graph))
    sample = samples.get("the example")
    return plan, stage_errors(plan, numbered(plan, device), before, sample)


def broken_at(monkeypatch, product: int) -> None:
    """From now on steps of the plan compute one of the products with an error of 1e-4."""
    right, seen = reference.value_of, []

    def value_of(node, *more):
        value = right(node, *more)
        if node.op == "linear":
            seen.append(node)
            if len(seen) == product:
                return value * (1 + 1e-4 * torch.randn_like(value))
        return value

    monkeypatch.setattr(reference, "value_of", value_of)


def test_each_stage_stands_beside_the_models_own_value():
    plan, stages = staged()
    assert {s.name for s in stages} == {g.name for g in plan.steps if isinstance(g, Group)}
    assert all(0 < s.ours < 1e-6 for s in stages) and not any(s.is_bad for s in stages)
    # the three products at least are values that the model has
    assert sum(s.eager is not None and s.eager > 0 for s in stages) >= 3
    assert stages[-1].ratio == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize("product", [1, 2, 3])
def test_an_error_is_shown_at_the_stage_that_makes_it(monkeypatch, product):
    broken_at(monkeypatch, product)
    plan, stages = staged()
    broken = [g.name for g in plan.steps if isinstance(g, Group) and g.is_product][product - 1]
    first = next(s.number for s in stages if s.is_bad)
    assert {s.name for s in stages if s.number == first} == {broken}
    assert all(s.ours < 1e-6 for s in stages if s.number < first)
    assert all(1e-6 < s.ours < 1e-2 for s in stages if s.number >= first)


def test_a_rewrite_that_is_wrong_is_shown_at_the_result():
    def wrong(graph: Graph) -> Graph:
        (out,) = graph.outputs
        scale = as_scalar(1.001, out.value.dtype)
        return Graph((replace(out, value=make("mul", out.value, scale)),))

    _, stages = staged(wrong)
    assert [s.is_bad for s in stages] == [False] * (len(stages) - 1) + [True]
    assert stages[-1].ours == pytest.approx(1e-3, rel=0.01)


def rows_of(text: str) -> list[tuple[bool, str]]:
    """Of each row of the page's table: whether it is coloured, and its stage."""
    table = text[text.index("Error by stage") : text.index("<h2>Speed")]
    rows = re.findall(r'<tr( class="warn")?><td.*?<code>(.*?)</code>', table)
    return [(bool(warn), re.sub("<.*?>", "", name)) for warn, name in rows]


def test_the_page_shows_it(tmp_path, monkeypatch):
    path = pages.written(tmp_path, DEEP)
    sound = rows_of(pages.explained(path, tmp_path))
    assert len(sound) >= 3 and not any(warn for warn, _ in sound)
    broken_at(monkeypatch, 2)
    broken = rows_of(pages.explained(path, tmp_path))
    assert [name for _, name in broken] == [name for _, name in sound]
    assert broken[-1][0] and not broken[0][0]


def test_of_many_stages_those_furthest_above_eager_are_shown():
    def one(i: int, ours: float, eager: float | None) -> StageError:
        return StageError(i, f"k{i}", "add, 8", ours, eager)

    stages = [one(1, 1e-7, 1e-7), one(2, 9.0, None), one(3, 4e-7, 1e-7), one(4, 1e-7, None)]
    assert [s.number for s in worst(stages, 2)] == [1, 3]
    assert [s.number for s in worst(stages, 3)] == [1, 2, 3]
    # a rounding of one's own where eager's happened to be exact is no fault
    assert not one(5, 5e-8, 0.0).is_bad and one(6, 1e-6, 0.0).is_bad
