"""Prices of plans: they count what is started, answer to every rate of a device, and decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from captures import captured_once, derived, drawn
from launches import CountingTarget, started
from refold import derive, pipeline
from refold.derive import Options
from refold.devices import DeviceModel
from refold.engine import run
from refold.engine.extract import charged, computed
from refold.families import BY_NAME, Family
from refold.families.prices import moved
from refold.families.samples import Sample
from refold.ir import Node, hint, numel
from refold.plan import Group
from refold.planner import PlanPricer, plan_price
from refold.price import Price
from test_families import (
    ALL,
    choice_of,
    claimed_on,
    has_kernels,
    name_of,
    plan_of,
)
from zoo import CASES

TARGETS = ("cpu", "cuda:sm_90")
TAKEN = [(f, s) for f, s in ALL if not s.refused]
SLOWER = 10  # times

# --- the zoo --------------------------------------------------------------------------------------
PRICES: list[float] = []  # of the graphs that a search ended with


class Recording(PlanPricer):
    def price(self, graph, originals):
        PRICES.append(super().price(graph, originals))
        return PRICES[-1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_the_least_price_decides_and_counts_what_is_started(name, target, monkeypatch):
    """Of a model's modes: launches as they are when the emitted forward runs."""
    last = run.last
    monkeypatch.setattr(derive, "PlanPricer", Recording)
    monkeypatch.setattr(run, "last", lambda *given: PRICES.clear() or last(*given))
    module, inputs = drawn(name)
    _, device = pipeline.target_for(target, "ieee")
    chosen: list[float] = []
    optimize = derive.optimize

    def checked(*given, **more):
        done = optimize(*given, **more)
        assert done.price_after == min(PRICES) and done.price_before == PRICES[0]
        chosen.append(done.price_after)
        return done

    monkeypatch.setattr(derive, "optimize", checked)
    options = Options(measure=False, accuracy=False)
    with captured_once():
        result = pipeline.run(
            module, inputs, "# Model is bound.", name, CountingTarget(), device, options
        )
    for d in result.derivations:
        if d.mode.plan is not None:
            price = plan_price(d.mode.plan, device.at(d.dtype))
            assert price.seconds == pytest.approx(d.optimized.price_after) and chosen
            found = started(result.text, module, inputs, d.mode.name == "train")
            assert price.launches == found.total(), (price, found)


# --- families -------------------------------------------------------------------------------------
Pricing = Callable[[Group, DeviceModel], Price]


def slower(device: DeviceModel, rate: str) -> DeviceModel:
    """The same device, one of whose rates is worse."""
    there = getattr(device.device, rate)
    worse = there * SLOWER if rate == "launch" else there / SLOWER
    return replace(device, device=replace(device.device, **{rate: worse}))


def wanted(group: Group) -> set[str]:
    """The rates on which a kernel's time rests."""
    found = {"launch", "bandwidth"}
    if any(not n.row.is_contraction for n in group.nodes):
        found.add("plain_flops")
    on_cuda_cores = group.kernel is not None and not group.kernel.on_tensor_cores
    if group.is_product and not on_cuda_cores:
        found.add("product_flops")
    return found


def faults(pricing: Pricing, group: Group, device: DeviceModel) -> set[str]:
    """What is missing in the price of a kernel."""
    price, found = pricing(group, device), set()
    for rate in wanted(group):
        if pricing(group, slower(device, rate)).seconds <= price.seconds:
            found.add(rate)
    values = [n for n in (*group.inputs, *group.outputs) if n.op != "scalar"]
    if price.moved < sum(bytes_of(group, n) for n in values):
        found.add("moved")
    if (price.launches, min(price.kernels, 1)) != (1, 1):
        found.add("launches")
    return found


def bytes_of(group: Group, node: Node) -> int:
    return hint(numel(node.shape)) * group.stored(node).itemsize


@pytest.mark.parametrize(("family", "sample"), TAKEN, ids=name_of)
def test_a_price_answers_to_each_rate(family: Family, sample: Sample) -> None:
    for target in TARGETS:
        if not has_kernels(family, target):
            continue
        _, device = pipeline.target_for(target, "ieee", choice_of("ieee", target))
        plan = plan_of(sample, device)
        assert plan is not None
        for group in plan.groups:
            assert not faults(BY_NAME[group.family].price, group, device), group.name


@pytest.mark.parametrize(("family", "sample"), TAKEN, ids=name_of)
def test_a_charge_is_near_the_price(family: Family, sample: Sample) -> None:
    """A charge says no more than twice what the plan takes: it would hide what is cheap. (It may
    say less: what fuses is charged without a launch, and the plan may not fuse it.)"""
    for target in TARGETS:
        if not has_kernels(family, target):
            continue
        _, device = pipeline.target_for(target, "ieee", choice_of("ieee", target))
        found = derived(sample, device)
        plan, done = found.mode.plan, found.optimized
        assert plan is not None and done is not None
        # a charge counts a kernel's launch as a function's of PyTorch
        device = replace(device, device=replace(device.device, call=0.0))
        # of what was searched: how a variance is computed is decided behind the search
        charge = charged(computed(done.graph), PlanPricer(device))
        assert charge <= 2 * plan_price(plan, device).seconds


class Transposed(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.mT, -1)


def test_a_copy_of_what_is_transposed_answers_to_its_rate() -> None:
    target, device = pipeline.target_for("cuda:sm_90", "ieee")
    options, x = Options(measure=False, accuracy=False), torch.randn(64, 128, 256)
    result = pipeline.run(Transposed().eval(), [x], "#", "x", target, device, options)
    plan = next(m.plan for m in result.modes if m.plan is not None)
    price = plan_price(plan, device).seconds
    copied = 2 * 4 * x.numel() / device.bandwidth  # read and written
    worse = plan_price(plan, slower(device, "crosses")).seconds
    assert worse - price == pytest.approx((SLOWER - 1) * copied / device.crosses)


WRONG: dict[str, tuple[str, Callable[[Pricing], Pricing]]] = {
    "no launch": (
        "launch",
        lambda right: (
            lambda g, d: replace(
                right(g, d), seconds=right(g, d).seconds - d.launch * right(g, d).kernels
            )
        ),
    ),
    "no traffic": (
        "bandwidth",
        lambda right: lambda g, d: right(g, replace(d, device=replace(d.device, bandwidth=1e30))),
    ),
    "results are not written": (
        "moved",
        lambda right: (
            lambda g, d: replace(
                right(g, d), moved=moved(g) - sum(bytes_of(g, o) for o in g.outputs)
            )
        ),
    ),
    "no arithmetic": (
        "plain_flops",
        lambda right: lambda g, d: right(g, replace(d, device=replace(d.device, plain_flops=1e30))),
    ),
    "free products": (
        "product_flops",
        lambda right: (
            lambda g, d: right(g, replace(d, device=replace(d.device, product_flops=1e30)))
        ),
    ),
    "two launches": ("launches", lambda right: lambda g, d: replace(right(g, d), launches=2)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_price_that_misses_a_term_is_found(wrong: str) -> None:
    """Whatever the family, some sample of its tells."""
    fault, seeded = WRONG[wrong]
    _, device = pipeline.target_for("cpu", "ieee", choice_of("ieee", "cpu"))
    told: dict[str, bool] = {}
    for family, sample in claimed_on("cpu"):
        plan = plan_of(sample, device)
        assert plan is not None
        for group in (g for g in plan.groups if g.family == family.name):
            if fault in {*wanted(group), "moved", "launches"}:
                found = faults(seeded(family.price), group, device)
                told[family.name] = told.get(family.name, False) or fault in found
    assert told and all(told.values()), told
