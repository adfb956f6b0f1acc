"""The cost model's orderings, which decide what is kept."""

import pytest

from refold.cost import DeviceModel, floor, seconds
from refold.devices import DEVICES
from refold.rules.term import linear, mean, relu, var

from .graphs import N, graph, p, x

H200 = DeviceModel.of("cuda:sm_90")


@pytest.mark.parametrize("device", [*map(DeviceModel, DEVICES.values())], ids=lambda d: d.name)
def test_an_epilogue_is_cheaper_than_a_prologue(device) -> None:
    before = graph(linear(x(N, 4096) * p("s", 4096), p("w", 4096, 4096)))
    after = graph(linear(x(N, 4096), p("w", 4096, 4096)) * p("s", 4096))
    assert seconds(after, device) < seconds(before, device)


def test_folding_a_scale_into_a_large_weight_does_not_pay() -> None:
    epilogue = graph(linear(x(N, 4096), p("w", 4096, 4096)) * p("s", 4096))
    folded = graph(linear(x(N, 4096), p("w", 4096, 4096) * p("s", 4096, 1)))
    assert seconds(epilogue, H200) == pytest.approx(seconds(folded, H200), rel=0.01)


def test_a_smaller_product_is_cheaper() -> None:
    large = graph(linear(x(N, 4096), p("w", 4096, 4096)))
    small = graph(linear(x(N, 4096), p("w", 256, 4096)))
    assert seconds(small, H200) < seconds(large, H200) / 4


def test_statistics_of_one_value_share_a_pass() -> None:
    v = relu(x(N, 4096))
    one = seconds(graph(mean(v, (-2,))), H200)
    both = seconds(graph((mean(v, (-2,)), var(v, (-2,), correction=0))), H200)
    assert both < 1.2 * one


def test_the_floor_of_the_known_systems() -> None:
    s0 = graph(linear(x(1024, 8192), p("w", 1, 8192)))
    assert floor(s0, H200) == pytest.approx(7.8e-6, rel=0.05)
    s1 = graph(linear(x(1024, 8192), p("w", 512, 8192)))
    assert floor(s1, H200) == pytest.approx(39e-6, rel=0.05)
