"""Errors against float64 of what each step of a plan stores, beside the model's own there.

The steps are run by PyTorch (`plan/reference.py`): in the dtype of each value, and in the memory
that the plan gives it, but without any kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from refold.accuracy.errors import error_of
from refold.accuracy.samples import Sample
from refold.devices import DeviceModel
from refold.ir import Graph, Node
from refold.ir.rounded import run_exact, run_rounded
from refold.plan import ExternCall, Group, Plan
from refold.plan.reference import Values, run_plan
from refold.planner import plan_price

SAME = 1e-9  # of their root mean square: by how much two ways to one value differ in float64
BAD = 1.5  # times the model's own error from which a stage is marked


@dataclass(frozen=True)
class StageError:
    """One value that a step stores. number, name: the step's. value: its op and shape.

    ours, eager: root mean square errors against float64, relative to the values' own; inf where a
    finite value was lost. eager: of the same value as the model computes it, op by op in its own
    dtypes; None where the model has no such value.
    """

    number: int
    name: str
    value: str
    ours: float
    eager: float | None

    @property
    def ratio(self) -> float | None:
        """Ours over eager's. A stage is judged by no less than half a unit in the last place."""
        if self.eager is None:
            return None
        if self.ours == self.eager:
            return 1.0
        return self.ours / self.eager if self.eager else math.inf

    @property
    def is_bad(self) -> bool:
        """Whether it stands out: by more than roundings of single values differ."""
        least = torch.finfo(torch.float32).eps / 2
        return self.ours > BAD * max(self.eager or 0.0, least) and self.eager is not None


def name_of(step: Group | ExternCall) -> str:
    """A kernel's name, or PyTorch's function."""
    if isinstance(step, Group):
        return step.name
    return str(step.node["target"]) if step.node.op == "aten" else step.node.op


def numbered(plan: Plan, device: DeviceModel) -> dict[int, int]:
    """By place in the plan, the numbers of the steps that launch something; from 1."""
    costs = plan_price(plan, device).steps
    launched = [i for i, cost in enumerate(costs[: len(plan.steps)]) if cost.launches]
    return {i: number for number, i in enumerate(launched, 1)}


def stage_errors(
    plan: Plan, numbers: Mapping[int, int], before: Graph, sample: Sample
) -> list[StageError]:
    """The errors of all values of floating point that numbered steps store, in the plan's order.

    before: the graph that the sample was made for. A result's truth is the model's own in float64:
    an error of a rewrite shows there. The model's value beside another stage is one that is equal
    in float64.
    Raises as `run_plan` does.
    """
    steps = [s for i, s in enumerate(plan.steps) if i in numbers]
    number_of = {id(plan.steps[i]): number for i, number in numbers.items()}
    stored = [n for s in steps for n in (s.outputs if isinstance(s, Group) else (s.node,))]
    floats = [n for n in dict.fromkeys(stored) if n.is_float]
    named = {(n.op, n["name"]): v for n, v in sample.leaves.items()}
    leaves = {n: named[n.op, n["name"]] for n in plan.graph.nodes() if n.row.is_named}
    truth = run_exact(floats, leaves, sample.sizes)
    eager = _equal(before, sample, truth)
    for root, own, exact in zip(plan.graph.roots(), sample.eager, sample.truth, strict=True):
        if root in truth and exact.is_floating_point():
            truth[root], eager[root] = exact, own
    found: list[StageError] = []

    def watch(step: Group | ExternCall, made: Values) -> None:
        number = number_of.get(id(step))
        for node, value in made.items():
            if number is None or not node.is_float:
                continue
            ours, theirs = _errors(value, eager.get(node), truth[node])
            sizes = "×".join(str(s) for s in value.shape if s != 1) or "1"
            found.append(StageError(number, name_of(step), f"{node.op}, {sizes}", ours, theirs))

    run_plan(plan, leaves, sample.sizes, watch)
    return found


def _equal(before: Graph, sample: Sample, truth: Values) -> dict[Node, torch.Tensor]:
    """For values of a plan, the model's own ones in their dtypes, where float64 tells no
    difference. truth: the plan's in float64."""
    signs = {n: _signature(v) for n, v in truth.items()}
    by_count: dict[int, list[Node]] = {}
    for n, sign in signs.items():
        by_count.setdefault(sign[0], []).append(n)
    likely: dict[Node, list[Node]] = {}

    def watch(node: Node, value: torch.Tensor) -> None:
        if not node.is_float or not node.inputs or value.numel() not in by_count:
            return
        sign = _signature(value)
        for n in by_count[sign[0]]:
            if all(map(_close, sign[1:], signs[n][1:])):
                likely.setdefault(n, []).append(node)

    run_exact(before.roots(), sample.leaves, sample.sizes, watch)
    wanted = list(dict.fromkeys(n for nodes in likely.values() for n in nodes))
    exact = run_exact(wanted, sample.leaves, sample.sizes)
    own = run_rounded(wanted, sample.leaves, sample.sizes)
    found = {}
    for n, nodes in likely.items():
        for node in nodes:
            a, b = truth[n].flatten(), exact[node].flatten()
            if torch.allclose(a, b, rtol=SAME, atol=SAME * signs[n][1], equal_nan=True):
                found[n] = own[node]
                break
    return found


def _signature(value: torch.Tensor) -> tuple[int, float, float]:
    """What equal values have in common: their number, their root mean square, and that of some."""
    flat = value.double().flatten().nan_to_num(0.0, 0.0, 0.0)
    count = max(flat.numel(), 1)
    all_of_it, some = (torch.linalg.vector_norm(v).item() for v in (flat, flat[::3]))
    return flat.numel(), all_of_it / math.sqrt(count), some / math.sqrt(count)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME)


def _errors(
    made: torch.Tensor, own: torch.Tensor | None, truth: torch.Tensor
) -> tuple[float, float | None]:
    truth = truth.reshape(made.shape)
    beside = made if own is None else own.reshape(made.shape)
    one = error_of(beside, made, truth)
    scale = math.sqrt(one.values) or 1.0
    ours = math.inf if one.lost else math.sqrt(one.rewritten) / scale
    return ours, None if own is None else math.sqrt(one.eager) / scale


def worst(stages: Sequence[StageError], most: int) -> list[StageError]:
    """Those of the largest ratio, and then of the largest error; in their order."""
    order = sorted(
        range(len(stages)), key=lambda i: (-(stages[i].ratio or 0.0), -stages[i].ours, i)
    )
    return [stages[i] for i in sorted(order[:most])]
