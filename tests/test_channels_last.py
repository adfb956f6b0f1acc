"""Images keep the memory format that eager gives them, for the call's own images."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from refold import introspect
from refold.ir import Graph, Output
from refold.ir.shapes import pad
from refold.plan.layout import channels_last, turned_back
from refold.planner import make_plan
from refold.rules.term import conv, permute, relu
from refold.rules.term import sum as summed
from tests.engine.graphs import p, x

FORMATS = (torch.contiguous_format, torch.channels_last)


class Images(nn.Module):
    """Convolutions, batch norm, pooling, joining, a gate by channel, a norm over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.gate = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        y = F.max_pool2d(torch.relu(self.bn(self.first(x))), 2)
        z = torch.tanh(self.second(y)) * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
        both = torch.cat([y, z + y], 1)
        normed = self.norm(both.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return both * 2, torch.softmax(both, 1), normed + 1, both.flatten(1).sum(1), x[:, :1] + 1


class Plain(nn.Module):
    """No convolution: results follow the arguments."""

    def forward(self, x, y):
        return torch.sigmoid(x * 2 + 1) * y, (x - y).sum(1)


def check(module, fast, images):
    """fast takes its kernels for `images`, and gives eager's values, strides and buffers."""
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        twin = copy.deepcopy(refold.original(fast))
        for got, want in zip(fast(*images), twin(*images), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            for size, mine, eager in zip(want.shape, got.stride(), want.stride(), strict=True):
                assert size == 1 or mine == eager, (want.shape, got.stride(), want.stride())
        for a, b in zip(fast.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(a, b)


def image(form, shape=(2, 3, 8, 10)):
    return torch.randn(shape).contiguous(memory_format=form)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_results_lie_as_eager_lays_them_for_both_layouts(form):
    torch.manual_seed(0)
    module = Images().to(memory_format=form)
    fast = refold.optimize(module, image(form), measure=False)
    for training in (True, False):
        fast.train(training)
        for other in FORMATS:
            check(module, fast, [image(other, (3, 3, 8, 10))])
    # what is flattened, and the sum whose norm is taken, as in eager
    assert copies(fast, image(form)) <= copies(refold.original(fast), image(form))


def copies(module, x):
    """How many weights, and values of eight channels or more, a call lays out anew."""
    with torch.no_grad():
        module(x)
        with torch.profiler.profile(record_shapes=True) as seen:
            module(x)
    shapes = [e.input_shapes[0] for e in seen.events() if e.name == "aten::copy_"]
    return sum(math.prod(shape) > 200 for shape in shapes)


def test_arguments_that_lie_in_two_ways_take_the_original():
    module = Plain()
    fast = refold.optimize(module, image(FORMATS[0]), image(FORMATS[0]), measure=False)
    for form in FORMATS:
        check(module, fast, [image(form), image(form)])
    with torch.no_grad():
        reason = introspect.fallback_reason(fast, [image(form) for form in FORMATS])
        assert "some lie with their channels last and others do not" in reason
        # one channel, laid out either way, is told by its strides as PyTorch tells it
        one = image(FORMATS[0], (2, 1, 4, 4))
        assert fast(one, one)[0].stride() == module(one, one)[0].stride()


@pytest.mark.parametrize("places", ((8, 8), (4, 8, 8)), ids=("images", "volumes"))
def test_what_follows_a_convolution_is_computed_with_the_channels_last(places):
    kernel = (3,) * len(places)
    images, weight, bias = x(2, 3, *places), p("w", 4, 3, *kernel), p("b", 4)
    ones = (1,) * len(places)
    y = relu(conv(images, weight, bias, ones, ones, ones, 1))
    total = summed(y, (-len(places) - 1,))
    graph = Graph((Output(y.node, (2, 4, *places)), Output(total.node, (2, 1, *places))))
    turned, _ = channels_last(graph, {images.node: len(places)})
    (group,) = make_plan(turned).groups
    # channels are a row: the sum needs no pass of its own
    assert group.dims == pad((2, *places, 4))
    assert channels_last(graph, {})[0] == graph


def test_what_a_model_permutes_for_a_convolution_lies_with_the_channels_last():
    """Norms compute images row after row of channels; no copy in another order is made for the
    convolution, nor for what follows it. What no convolution reads is left as it is."""
    rows, weight, other, bias = x(2, 4, 4, 8), p("w", 8, 8, 1, 1), p("v", 8, 8, 1, 1), p("b", 8)
    shut, ones = (0, 0), (1, 1)
    images = permute(relu(rows), (0, 1, 4, 2, 3))
    first = relu(conv(images, weight, bias, ones, shut, ones, 1))
    second = conv(first, other, bias, ones, shut, ones, 1)
    graph = Graph((Output(second.node, (2, 8, 4, 4)),))
    turned, _ = channels_last(graph, {})
    plan = make_plan(turned)
    assert [g.dims for g in plan.groups] == [pad((2, 4, 4, 8))] * 2
    convolutions = [n for n in turned.nodes() if n.op == "conv"]
    assert all(turned_back(n.inputs[0]) is not None for n in convolutions)
    assert not any(n in plan.buffers.dense for n in convolutions)
    alone = Graph((Output(relu(images).node, (2, 8, 4, 4)),))
    assert channels_last(alone, {})[0] == alone


@pytest.mark.parametrize("axes", [(4,), (4, 4), (3, 4, 4)])
def test_transforms_of_images_see_the_original(axes):
    """Under vmap nobody may ask how images lie: the question raised an error of PyTorch's."""
    convolution, pool = {
        1: (nn.Conv1d, nn.AvgPool1d),
        2: (nn.Conv2d, nn.AvgPool2d),
        3: (nn.Conv3d, nn.AvgPool3d),
    }[len(axes)]
    module = nn.Sequential(convolution(2, 6, 1), nn.ReLU(), pool(2)).eval()
    x = torch.randn(3, 2, *axes)
    fast = refold.optimize(module, x, measure=False)
    calls = (
        lambda m: torch.vmap(m)(torch.stack([x, 2 * x])),
        lambda m: torch.vmap(m, in_dims=2)(torch.stack([x, 2 * x], 2)),
        lambda m: torch.vmap(torch.func.grad(lambda v: m(v).sum()))(torch.stack([x, 2 * x])),
        lambda m: torch.func.jacrev(m)(x),
        lambda m: torch.func.jvp(m, (x,), (torch.ones_like(x),))[1],
    )
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x))
        for call in calls:
            torch.testing.assert_close(call(fast), call(module))
        fast(x)
        assert refold.status(fast).fast, refold.status(fast)
