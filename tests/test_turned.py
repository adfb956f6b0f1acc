"""Results of the library's convolutions that kernels read with their channels last: which, what is
written around the call, and that kernels compute the same."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import nn

from agree import check_values
from refold import introspect, pipeline
from refold.conv_rules import far_ahead
from refold.devices import DEVICES, DeviceModel
from refold.ir import Graph, Node, Output, as_scalar, leaf, make
from refold.ir.ops import CONVOLUTIONS
from refold.ir.shapes import pad
from refold.plan import Plan
from refold.plan.reference import Incomplete, run_plan
from refold.planner import make_plan, plan_price
from test_models import written
from tests.emulator.test_modules import built_for_emulator

SM_90 = "cuda:sm_90"
Read = Callable[..., object]


class Net(nn.Module):
    """A convolution that the library computes, and what reads it, a vector of its channels and an
    image."""

    def __init__(self, conv: nn.Module, read: Read) -> None:
        super().__init__()
        self.conv, self.read = conv, read
        channels = conv.out_channels
        self.s = nn.Parameter(torch.randn(channels, *(1 for _ in conv.kernel_size)))

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> object:
        return self.read(self.conv(x), self.s, y)


def activation(y: torch.Tensor, s: torch.Tensor, other: torch.Tensor | None) -> object:
    return torch.sigmoid(y * s) * 3


def beside(y: torch.Tensor, s: torch.Tensor, other: torch.Tensor | None) -> object:
    assert other is not None
    return torch.tanh(y.clamp(min=-0.7) / 2 + other) * s, y.relu() - s


@pytest.fixture
def anyway() -> Iterator[None]:
    """Whatever is gained."""
    with (
        mock.patch("refold.planner.turned._GAIN", -1e9),
        mock.patch("refold.planner.conversions.kind_of", lambda c, allowed: "tf32"),
    ):
        yield


def turned(plan: Plan) -> int:
    """How many results are read so."""
    read = {n for g in plan.groups for n in g.channels_last}
    assert read == set(plan.buffers.turned)
    assert read.isdisjoint(plan.buffers.dense)
    return sum(n.op in CONVOLUTIONS for n in read)


# --- which --------------------------------------------------------------------------------------
def leaf_of(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
    return leaf("input" if name == "x" else "param", pad(shape), dtype, name=name, index=0)


def conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    transposed: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Node:
    places = len(x) - 2

    def each(n: int) -> tuple[int, ...]:
        return (n,) * places

    attrs = {"strides": each(stride), "paddings": each(0), "dilations": each(dilation)}
    more = {"output_padding": each(0)} if transposed else {}
    inputs = (leaf_of("x", *x, dtype=dtype), leaf_of("w", *w, dtype=dtype), as_scalar(0.0, dtype))
    return make("conv_transpose" if transposed else "conv", *inputs, groups=groups, **attrs, **more)


def sine(y: Node) -> Node:
    return make("sin", y)


IMAGE, KERNEL = (64, 64, 160, 160), (128, 64, 3, 3)
PAYS: dict[str, Node] = {
    "an activation": sine(conv(IMAGE, KERNEL)),
    "by channel": make("mul", sine(conv(IMAGE, KERNEL)), leaf_of("s", 128, 1, 1)),
    "transposed volumes": sine(conv((16, 64, 24, 48, 48), (64, 128, 3, 3, 3), 2, transposed=True)),
}
KEPT: dict[str, Node] = {
    "a result as it is": conv(IMAGE, KERNEL),
    "a reduction": make("sum", sine(conv(IMAGE, KERNEL)), axes=(-1,)),
    "spread along rows": make("add", conv(IMAGE, KERNEL), leaf_of("s", 1, 158)),
    "large images, small results": sine(conv((64, 128, 160, 160), (16, 128, 3, 3), stride=4)),
    "large kernels": sine(conv(IMAGE, (128, 64, 7, 7))),
    "spread apart": sine(conv(IMAGE, KERNEL, dilation=2)),
    "few channels, in fp32": sine(conv((64, 3, 224, 224), (64, 3, 3, 3))),
    "groups": sine(conv(IMAGE, (128, 16, 3, 3), groups=4)),
    "small": sine(conv((1, 64, 20, 20), KERNEL)),
    "along a line": sine(conv((640, 64, 16000), (128, 64, 3))),
    "16 bits": sine(conv(IMAGE, KERNEL, dtype=torch.bfloat16)),
}


def planned(*roots: Node, target: str = SM_90, float32: str = "tf32", last: bool = False) -> Plan:
    graph = Graph(tuple(Output(r, r.shape) for r in roots))
    return make_plan(graph, None, DeviceModel(DEVICES[target], conv_float32=float32), last)


@pytest.mark.parametrize("case", PAYS)
def test_large_results_of_which_something_follows_are_read_so(case: str) -> None:
    assert turned(planned(PAYS[case])) == 1


@pytest.mark.parametrize("case", KEPT)
def test_others_lie_as_they_did(case: str) -> None:
    assert turned(planned(KEPT[case])) == 0


def test_what_others_read_lies_as_it_did() -> None:
    y = conv(IMAGE, KERNEL)
    assert turned(planned(sine(y), make("exp", y))) == 1
    assert turned(planned(sine(y), y)) == 0
    assert turned(planned(sine(y), make("sum", make("exp", y), axes=(-1,)))) == 0
    pooled = make(
        "max_pool", y, sizes=(2, 2), strides=(2, 2), paddings=0, dilations=1, ceil_mode=False
    )
    assert turned(planned(sine(y), pooled)) == 0


# --- between convolutions -------------------------------------------------------------------------
def after(x: Node, w: tuple[int, ...], name: str, padding: int = 1) -> Node:
    """A convolution of what a kernel makes."""
    attrs = {"strides": (1, 1), "paddings": (padding,) * 2, "dilations": (1, 1), "groups": 1}
    return make("conv", x, leaf_of(name, *w), as_scalar(0.0, torch.float32), **attrs)


def chain(batch: int = 64) -> tuple[Node, Node, Node]:
    """Two convolutions, what is between them, and what follows."""
    first = conv((batch, 64, 58, 58), (64, 64, 3, 3))
    between = make("relu", make("mul", first, leaf_of("s", 64, 1, 1)))
    second = after(between, (64, 64, 3, 3), "v")
    return between, second, sine(second)


def test_between_convolutions_it_stays_so() -> None:
    between, second, root = chain()
    plan = planned(root)
    assert turned(plan) == 2 and between in plan.buffers.turned
    kept, last = plan.groups
    assert (kept.last, kept.turned, last.last, last.turned) == (True, (), False, (second,))


def test_a_shortcut_is_read_in_either_order() -> None:
    """Of a block's two branches one lies so, and the block after it gets what it wants."""
    between, second, _ = chain()
    block = make("relu", make("add", second, leaf_of("x", 64, 64, 56, 56)))
    plan = planned(sine(after(block, (64, 64, 3, 3), "u")))
    assert turned(plan) == 3 and {between, block} <= set(plan.buffers.turned)
    assert [len(g.turned) for g in plan.groups] == [0, 1, 1]
    both = make("relu", make("add", second, between))
    plan = planned(sine(after(both, (64, 64, 3, 3), "u")))
    assert turned(plan) == 3 and [len(g.turned) for g in plan.groups] == [0, 0, 1]


def test_convolutions_of_one_tap_read_and_give_it_so() -> None:
    """The library does not convert what they read, but what lies between others stays so: a
    shortcut of fewer places, and the outer ones of a bottleneck."""
    between, _, _ = chain()
    first = after(between, (128, 64, 1, 1), "u", 0)
    inner = make("relu", first)
    second = after(inner, (128, 128, 3, 3), "v")
    last = after(make("relu", second), (64, 128, 1, 1), "t", 0)
    plan = planned(sine(last))
    assert turned(plan) == 4 and {between, first, inner, second} <= set(plan.buffers.turned)
    alone = conv((64, 64, 56, 56), (64, 64, 1, 1))
    assert turned(planned(sine(alone))) == 0  # nothing is gained
    few = after(between, (16, 64, 1, 1), "u", 0)
    assert few not in planned(sine(few)).buffers.turned


def blocks(count: int, rows: int = 0) -> Node:
    """A convolution by steps of two, which no kernel takes, before and behind others by steps of
    one. rows: how many of these a vector along rows of places follows."""
    y = sine(conv((64, 64, 113, 113), (64, 64, 3, 3), stride=2))
    for i in range(count):
        y = after(y, (64, 64, 3, 3), f"v{i}")
        y = make("add", y, leaf_of(f"r{i}", 56, 1)) if i < rows else y
        y = make("relu", y)
    attrs = {"strides": (2, 2), "paddings": (1, 1), "dilations": (1, 1), "groups": 1}
    behind = make("conv", y, leaf_of("u", 64, 64, 3, 3), as_scalar(0.0, torch.float32), **attrs)
    return sine(behind)


def test_kernels_that_read_either_order_stand_in_a_chain() -> None:
    """Of a plan with them and one without that is taken by whose price is less; where they cut the
    chain they have to be ahead by far."""
    device = DeviceModel(DEVICES[SM_90], conv_float32="tf32")
    device = replace(device, convolutions=far_ahead("tf32", device.device.features))

    def kernels(root: Node) -> list[tuple[int, bool]]:
        plan = make_plan(Graph((Output(root, root.shape),)), None, device)
        return [(g.images, g.last) for g in plan.groups if g.family == "convolution"]

    assert kernels(blocks(3, rows=1)) == [(0, False), (2, True), (2, True)]
    assert kernels(blocks(2)) == []  # 0.76 of the price without them, and they cut the chain
    with mock.patch("refold.planner.chains._GAIN", 0.2):
        assert kernels(blocks(2)) == [(0, False), (0, False)]


def test_a_kernel_that_makes_the_image_stores_it_so() -> None:
    image = make("exp", leaf_of("x", *IMAGE))
    plan = planned(sine(after(image, KERNEL, "w", 0)))
    assert turned(plan) == 1 and image in plan.buffers.turned
    assert plan.groups[0].last and plan.groups[0].turned == (image.inputs[0],)


def test_what_others_read_between_lies_as_it_did() -> None:
    between, second, root = chain()
    for other in (between, make("sum", make("exp", between), axes=(-1,))):
        assert between not in planned(root, other).buffers.turned
    plan = planned(second)  # what goes out does, and so does what makes it
    assert between not in plan.buffers.turned and second not in plan.buffers.turned


def test_a_plan_by_pytorch_finds_what_lies_otherwise(anyway: None) -> None:
    _, _, root = chain(2)
    plan = planned(root)
    torch.manual_seed(0)
    named = [n for n in plan.graph.nodes() if n.row.is_named]
    leaves = {n: torch.randn([int(str(d)) for d in n.shape]) / 24 for n in named}
    with mock.patch("refold.planner.turned._GAIN", 1.0):
        before = planned(root)
    assert turned(before) == 0
    (got,), (wanted,) = (run_plan(p, leaves, {}) for p in (plan, before))
    torch.testing.assert_close(got, wanted)
    assert got.is_contiguous()
    wrong = replace(plan, buffers=replace(plan.buffers, turned={}))
    with pytest.raises(Incomplete, match="do not lie last"):
        run_plan(wrong, leaves, {})
    wrong = replace(before, buffers=replace(before.buffers, turned=plan.buffers.turned))
    with pytest.raises(Incomplete, match="whose channels lie last"):
        run_plan(wrong, leaves, {})


def test_only_where_it_was_measured() -> None:
    root = PAYS["an activation"]
    assert turned(planned(root, target="cuda:sm_80")) == 0
    assert turned(planned(root, target="cpu")) == 0
    assert turned(planned(root, float32="ieee")) == 0
    assert turned(planned(root, last=True)) == 0  # the image lies so, and the result, too
    with mock.patch("refold.pipeline.default_conv_float32", lambda: "ieee"):
        assert pipeline.target_for(SM_90)[1].converts is None
    with mock.patch("refold.pipeline.default_conv_float32", lambda: "tf32"):
        assert pipeline.target_for(SM_90)[1].converts is not None


def test_the_price_has_what_is_gained() -> None:
    """The pass over the result, less what the layout beforehand takes longer: of file 100 of
    KernelBench's level 2 a third."""
    root = PAYS["transposed volumes"]
    with mock.patch("refold.planner.turned._GAIN", 1.0):
        before = planned(root)
    device = DeviceModel(DEVICES[SM_90], conv_float32="tf32")
    seconds = [plan_price(p, device).seconds for p in (planned(root), before)]
    assert turned(before) == 0 and 0.6 < seconds[0] / seconds[1] < 0.8


# --- what is written -----------------------------------------------------------------------------
def test_the_call_is_given_images_so_and_gives_such(anyway: None) -> None:
    net = Net(nn.Conv2d(5, 8, 3), activation).eval()
    _, result = written(net, [torch.randn(2, 5, 9, 11)], SM_90)
    text = re.sub(r"\s+", "", result.text)
    assert "conv=x.contiguous(memory_format=torch.channels_last)" in text
    assert "conv=torch.nn.functional.conv2d(conv,conv_weight," in text
    assert text.count(".contiguous(memory_format=torch.channels_last)") == 2


def test_a_folded_weight_lies_as_the_images(anyway: None) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(5, 8, 3), nn.BatchNorm2d(8), nn.Sigmoid()).eval()
    _, result = written(net, [torch.randn(2, 5, 9, 11)], SM_90)
    plan = next(m.plan for m in result.modes if m.name == "eval")
    (call,) = plan.buffers.turned
    assert plan.buffers.prepared.channels_last == {call.inputs[1]}


# --- numbers ------------------------------------------------------------------------------------
CASES = {
    "few channels": (nn.Conv2d(3, 5, 3, padding=1), activation, (3, 3, 9, 31)),
    "more than a tile": (nn.Conv2d(3, 70, 2), activation, (2, 3, 12, 14)),
    "two tiles of channels": (nn.Conv2d(3, 130, 1, bias=False), activation, (2, 3, 9, 8)),
    "volumes": (nn.ConvTranspose3d(4, 33, 3, 2), activation, (2, 4, 2, 3, 4)),
    "one place": (nn.Conv2d(3, 40, 3), activation, (5, 3, 3, 3)),
    "one channel": (nn.Conv2d(3, 1, 3), activation, (2, 3, 9, 15)),
}


class Chain(nn.Module):
    """Convolutions with something between them, of which there are two orders to read."""

    def __init__(self, residual: bool = False, image: bool = False, channels: int = 0) -> None:
        super().__init__()
        self.residual, self.image = residual, image
        n = channels or 36
        self.a, self.b, self.c = (nn.Conv2d(c, n, 3, padding=1) for c in (channels or 3, n, n))
        self.s = nn.Parameter(torch.randn(n, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.a(torch.exp(x) - 1 if self.image else x)) * self.s
        z = torch.relu(self.b(y) + (y if self.residual else x[:, :1]))
        return torch.sigmoid(self.c(z) - (y if self.residual else 0.5))


class All(nn.Module):
    """All cases, and some with other images beside them, of one or two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(Net(conv, read) for conv, read, _ in CASES.values())
        self.beside = Net(nn.Conv2d(3, 36, 3, padding=1), beside)
        self.chains = nn.ModuleList([Chain(), Chain(residual=True), Chain(image=True)])
        self.volumes = nn.Sequential(
            nn.ConvTranspose3d(4, 6, 2, 2), nn.Sigmoid(), nn.Conv3d(6, 5, 2), nn.Tanh()
        )
        self.two = nn.ModuleList(nn.Conv2d(3, 21, 3, padding=1, stride=2) for _ in range(2))

    def forward(self, *given: torch.Tensor) -> list[torch.Tensor]:
        found = [net(x) for net, x in zip(self.nets, given, strict=False)]
        x, other = given[-2:]
        a, b = (conv(x) for conv in self.two)
        found += [net(x) for net in self.chains] + [self.volumes(given[3])]
        return [*found, *self.beside(x, other), torch.sigmoid(a) * b + 1]


def drawn(batch: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [size for *_, size in CASES.values()] + [(2, 3, 9, 13), (2, 36, 9, 13)]
    return [torch.randn(batch or size[0], *size[1:]) for size in shapes]


def test_kernels_compute_the_same(anyway: None) -> None:
    torch.manual_seed(0)
    module, result = written(All().eval(), drawn(), SM_90)
    assert turned(result.modes[0].plan) == len(CASES) + 3 + 3 * 3 + 2
    module, fast = built_for_emulator((module, result))
    special = drawn()
    for x in special:
        x.view(-1)[0], x.view(-1)[x.numel() // 2], x.view(-1)[-1] = torch.nan, torch.inf, -torch.inf
    last = [
        x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        for x in drawn()
    ]
    for inputs in (drawn(), drawn(2), drawn(6), special, last):
        with torch.no_grad():
            if inputs is not last:
                assert introspect.fallback_reason(fast, inputs) is None
            got, eager = fast(*inputs), module(*inputs)
            truth = copy.deepcopy(module).double()(*(x.double() for x in inputs))
        for g, e, t in zip(got, eager, truth, strict=True):
            assert g.stride() == e.stride()
            check_values(g, e, t)
