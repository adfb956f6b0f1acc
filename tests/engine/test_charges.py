"""Charges guide the search: what they have to order, and what they agree with prices on."""

import pytest

from refold.devices import DEVICES, DeviceModel
from refold.engine.extract import charged, computed
from refold.ir import Graph
from refold.planner import PlanPricer, floor
from refold.rules.term import linear, mean, relu, var

from .graphs import N, graph, p, x

H200 = DeviceModel.of("cuda:sm_90")


def charge(g: Graph, device: DeviceModel) -> float:
    return charged(computed(g), PlanPricer(device))


@pytest.mark.parametrize("device", [*map(DeviceModel, DEVICES.values())], ids=lambda d: d.name)
def test_an_epilogue_is_cheaper_than_a_prologue(device: DeviceModel) -> None:
    before = graph(linear(x(N, 4096) * p("s", 4096), p("w", 4096, 4096)))
    after = graph(linear(x(N, 4096), p("w", 4096, 4096)) * p("s", 4096))
    assert charge(after, device) < charge(before, device)
    pricer = PlanPricer(device)
    assert pricer.price(after, {}) < pricer.price(before, {})


def test_folding_a_scale_into_a_large_weight_does_not_pay() -> None:
    epilogue = graph(linear(x(N, 4096), p("w", 4096, 4096)) * p("s", 4096))
    folded = graph(linear(x(N, 4096), p("w", 4096, 4096) * p("s", 4096, 1)))
    assert charge(epilogue, H200) == pytest.approx(charge(folded, H200), rel=0.01)


def test_a_smaller_product_is_cheaper() -> None:
    large = graph(linear(x(N, 4096), p("w", 4096, 4096)))
    small = graph(linear(x(N, 4096), p("w", 256, 4096)))
    assert charge(small, H200) < charge(large, H200) / 4


def test_statistics_of_one_value_share_a_pass() -> None:
    v = relu(x(N, 4096))
    one = charge(graph(mean(v, (-2,))), H200)
    both = charge(graph((mean(v, (-2,)), var(v, (-2,), correction=0))), H200)
    assert both < 1.2 * one


def test_the_floor_of_the_known_systems() -> None:
    s0 = graph(linear(x(1024, 8192), p("w", 1, 8192)))
    assert floor(s0, H200) == pytest.approx(7.8e-6, rel=0.05)
    s1 = graph(linear(x(1024, 8192), p("w", 512, 8192)))
    assert floor(s1, H200) == pytest.approx(39e-6, rel=0.05)
