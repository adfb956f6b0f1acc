"""Convolutions and pooling as AOTAutograd writes them are read as exported ones are."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.lowering  # its decompositions ask it
from torch import nn
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from refold.backend import parts
from refold.backend.report import collected
from refold.capture import Captured
from refold.capture.aot import read_aot
from refold.ir.evaluate import evaluate

from .by_plan import by_plans
from .steps import all_ours, compiled


def read(function: Callable[..., Any], *args: torch.Tensor) -> Captured:
    """A function as its graph comes to the backend."""
    traced = make_fx(function, select_decomp_table(), tracing_mode="fake")(*args)
    traced.graph.eliminate_dead_code()
    assert not any("conv2d" in str(n.target) for n in traced.graph.nodes)
    return read_aot(traced.graph)


def ops(captured: Captured) -> set[str]:
    return {n.op for n in captured.graph.nodes()}


def check(module: nn.Module, *shape: int) -> set[str]:
    """Reads a module's call as a function of image and parameters, in float64, and compares."""
    module = module.double()
    named = dict(module.named_parameters())
    x = torch.randn(shape, dtype=torch.float64)

    def function(x: torch.Tensor, *values: torch.Tensor) -> Any:
        given = dict(zip(named, values, strict=True))
        return [torch.func.functional_call(module, given, (x,))]

    with torch.no_grad():
        captured = read(function, x, *named.values())
        (wanted,) = function(x, *named.values())
        places = (f.path for f in captured.fields)
        values = dict(zip(places, (x, *named.values()), strict=True))
        (made,) = evaluate(captured.graph, values)
    torch.testing.assert_close(made, wanted)
    return ops(captured)


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_convolution_is_read(places: int, bias: bool) -> None:
    """Strides, paddings and dilations of their own along each axis, and groups."""
    image = (2, 4, *(11, 9, 8)[:places])
    settings = {
        "stride": (2, 1, 3)[:places],
        "padding": (1, 2, 0)[:places],
        "dilation": (1, 2, 1)[:places],
        "groups": 2,
        "bias": bias,
    }
    found = check(CONVOLUTIONS[places - 1](4, 6, (3, 2, 3)[:places], **settings), *image)
    assert "conv" in found and "aten" not in found
    settings["output_padding"] = (1, 0, 2)[:places]
    found = check(TRANSPOSED[places - 1](4, 6, (3, 2, 3)[:places], **settings), *image)
    assert "conv_transpose" in found and "aten" not in found


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.MaxPool2d(3, 2, 1),
        lambda: nn.MaxPool2d((2, 3), ceil_mode=True),
        lambda: nn.MaxPool2d(2, dilation=2),
        lambda: nn.MaxPool3d(2),
        lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        lambda: nn.AdaptiveAvgPool2d(1),
        lambda: nn.AdaptiveAvgPool2d((2, 4)),
        lambda: nn.AdaptiveMaxPool2d(1),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.InstanceNorm2d(4),
    ],
)
def test_pooling_and_norms_are_read(make: Callable[[], nn.Module]) -> None:
    module = make()
    shape = (2, 4, 8, 8, 8) if isinstance(module, nn.MaxPool3d) else (2, 4, 8, 8)
    assert "aten" not in check(module, *shape)


def strided(shape: Any, strides: Any, x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.as_strided(x + 1, shape, strides)]


def test_what_the_table_does_not_express_stays_a_call() -> None:
    """Places that are read, images of 16 bits, windows that are not alike."""
    x = torch.randn(2, 4, 8, 8)
    places = read(lambda x: list(torch.ops.aten.max_pool2d_with_indices(x, [2, 2])), x)
    assert "aten" in ops(places)
    half, weight = x.bfloat16(), torch.randn(4, 4, 3, 3).bfloat16()
    found = ops(read(lambda x, w: [torch.conv2d(x, w)], half, weight))
    assert "aten" in found and "conv" not in found
    assert "aten" in ops(read(lambda x: [torch._adaptive_avg_pool2d(x, (3, 3))], x))
    assert "aten" not in ops(
        read(functools.partial(strided, (4, 2), (2, 1)), x[:, :, 0, 0].clone())
    )
    for shape, strides in [((4, 2), (1, 4)), ((2, 2), (4, 1)), ((8, 2), (0, 1))]:
        again = read(functools.partial(strided, shape, strides), x[:, :, 0, 0].clone())
        assert "aten" in ops(again)


def test_parts_lie_between_convolutions() -> None:
    """A part of which most is a convolution would hide what the product beside it gains."""

    def function(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [torch.conv2d(x, w).mean((2, 3)) @ v]

    given = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), torch.randn(6, 5)
    traced = make_fx(function, select_decomp_table(), tracing_mode="fake")(*given)
    (nodes,) = parts._regions(traced)
    names = {str(n.target) for n in nodes}
    assert "aten.mm.default" in names and "aten.convolution.default" not in names


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.apart = nn.Conv2d(8, 8, 3, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.norm(self.first(x)).relu())
        return self.head(self.up(self.apart(x)).mean((2, 3)))


def test_a_network_is_ours_and_follows_its_parameters() -> None:
    """Nothing is kept of a parameter: any write counts at the next call."""
    model = Net().eval()
    x = torch.randn(2, 3, 16, 16)

    def same() -> None:
        with torch.no_grad():
            wanted = copy.deepcopy(model).double()(x.double())
            torch.testing.assert_close(fast(x).double(), wanted, rtol=1e-4, atol=1e-5)

    with by_plans(), all_ours(), collected() as found:
        fast = compiled(model)
        same()
        model.first.weight.data.mul_(2)
        same()
        model.norm.running_mean.data.add_(0.5)
        same()
        model.load_state_dict(Net().state_dict())
        same()
        model.train()(x).sum().backward()  # statistics, and a step of an optimizer
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        model.eval()
        same()
    assert {(g.kind, g.by) for g in found} == {("inference", "refold")}, [str(g) for g in found]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_another_batch_and_layout(layout: torch.memory_format) -> None:
    """The same values, which lie as eager's do."""
    net = Net().eval().to(memory_format=layout)
    model = nn.Sequential(net.first, net.norm, nn.ReLU(), net.pool, net.apart)
    exact = copy.deepcopy(model).double()
    with by_plans(), all_ours(), collected() as found, torch.no_grad():
        fast = compiled(model)
        for rows in (2, 5):
            x = torch.randn(rows, 3, 16, 16).to(memory_format=layout)
            torch._dynamo.mark_dynamic(x, 0)
            made = fast(x)
            torch.testing.assert_close(made.double(), exact(x.double()), rtol=1e-4, atol=1e-5)
            assert made.stride() == model(x).stride()
    assert [g.by for g in found] == ["refold"], [str(g) for g in found]
