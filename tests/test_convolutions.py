"""Convolutions by our kernels: who computes which, how accurate they are, and the life of a module.

What they compute is in the family's samples (test_families.py), and at random in
test_random_convolutions.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from agree import check_life
from refold import introspect, pipeline
from refold.accuracy.samples import samples_of
from refold.capture import Example
from refold.conv_rules import by_rule
from refold.convolve import (
    DIRECT,
    IMPLICIT,
    PATCHES,
    STRIPS,
    Algorithm,
    Choice,
    Convolution,
    every_schedule,
    takes,
    tile_products,
)
from refold.derive import Options, derive
from refold.devices import DEVICES, DeviceModel
from refold.plan import ExternCall, Group
from refold.plan.convolution import ConvolutionKernel, of_node
from refold.plan.reference import run_plan
from refold.planner import plan_price
from refold.schedule import Kernels
from test_models import written
from tests.emulator.module import emulated

TARGET = "cuda:sm_80"
HOPPER = DEVICES["cuda:sm_90"].features


class Block(nn.Module):
    def __init__(self, channels: int = 8, features: int = 24, kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel, padding=1)
        self.shift = nn.Parameter(torch.randn(features, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) + self.shift


def choice(kind: str, tile: str = "slim", kernels: Kernels = IMPLICIT) -> Choice:
    """These kernels, for what they take; the implicit product for the rest."""
    other = "slim" if tile == "joined" else tile
    own, way = (
        [w for w in every_schedule(HOPPER) if w.tile == t and w.kernels is k]
        for k, t in ((IMPLICIT, other), (kernels, tile))
    )
    kind = "ieee" if kernels is DIRECT else kind
    return lambda c: Algorithm((way if takes(way[0], c, kind) else own or way)[0], kind)


def plan_of(module: nn.Module, x: torch.Tensor, convolutions: Choice | None, target: str = TARGET):
    _, device = pipeline.target_for(target, "ieee", convolutions)
    (found,) = derive(module.eval(), [x], device, Options(accuracy=False))
    return found.mode, device


def kinds(module: nn.Module, x: torch.Tensor, convolutions: Choice | None, target: str = TARGET):
    """The kinds of its own convolutions, and how many are PyTorch's."""
    mode, _ = plan_of(module, x, convolutions, target)
    steps = mode.plan.steps if mode.plan is not None else ()
    own = [s.kernel.kind for s in steps if isinstance(s, Group) and s.family == "convolution"]
    return own, sum(isinstance(s, ExternCall) and s.node.op == "conv" for s in steps)


def fast_of(
    module: nn.Module, inputs: list[torch.Tensor], convolutions: Choice, target: str = TARGET
) -> nn.Module:
    _, result = written(module.eval(), inputs, target, convolutions=convolutions)
    return pipeline.bind_for_class(emulated(result.text), module)


def relative(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got.double() - truth).norm() / truth.norm())


def truth_of(module: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(module).double()(*(x.double() for x in inputs))


# --- who computes which ---------------------------------------------------------------------------
def test_by_default_a_convolution_is_the_librarys() -> None:
    x = torch.randn(2, 8, 9, 9)
    assert kinds(Block(), x, None) == ([], 1)
    assert kinds(Block(), x, lambda c: None) == ([], 1)
    assert kinds(Block(), x, by_rule("ieee")) == (["ieee"], 0)
    for device in DEVICES:
        assert pipeline.target_for(device)[1].convolutions is None


def test_of_few_products_the_library_is_taken_to_compute_in_fp32() -> None:
    few, many = torch.randn(2, 8, 9, 9), torch.randn(2, 64, 9, 9)
    assert kinds(Block(), few, by_rule("tf32")) == (["ieee"], 0)
    assert kinds(Block(64), many, by_rule("tf32")) == (["tf32"], 0)
    assert kinds(Block(64), many, by_rule("ieee")) == (["ieee"], 0)


def test_the_tile_follows_from_the_number_of_features() -> None:
    def tile(features: int) -> str:
        c = Convolution(64, 64, features, 1, (64, 64), (62, 62), (3, 3), (1, 1), (0, 0), (1, 1))
        way = by_rule("ieee")(c)
        assert way is not None
        return way.schedule.tile

    assert [tile(n) for n in (16, 64, 65, 128, 192, 256)] == [
        *("slim", "slim", "broad", "broad", "slim", "broad")
    ]


@contextmanager
def cudnn_tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_the_flag_of_convolutions_is_read_and_guarded(
    pair: tuple[nn.Module, dict[str, nn.Module]],
) -> None:
    for allowed, kind in ((True, "tf32"), (False, "ieee")):
        with cudnn_tf32(allowed):
            assert pipeline.default_conv_float32() == kind
    x, wide, narrow = torch.randn(2, 40, 6, 5), pair[1]["tf32"], pair[1]["ieee"]
    for allowed in (False, True):
        with cudnn_tf32(allowed), torch.no_grad():
            reason = introspect.fallback_reason(wide, [x])
            assert (reason is None) is allowed, reason
            assert allowed or "for convolutions" in str(reason)
            assert introspect.fallback_reason(narrow, [x]) is None
    with torch.no_grad(), cudnn_tf32(True):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = not before  # that of products is another
        assert introspect.fallback_reason(wide, [x]) is None
        torch.backends.cuda.matmul.allow_tf32 = before
        with torch.backends.cudnn.flags(enabled=False, allow_tf32=True):  # fp32 is computed then
            assert "for convolutions" in str(introspect.fallback_reason(wide, [x]))
            assert pipeline.default_conv_float32() == "ieee"


def test_a_plan_with_them_runs_by_pytorch_alone() -> None:
    module, x = Block(), torch.randn(3, 8, 7, 9)
    mode, _ = plan_of(module, x, by_rule("ieee"))
    samples = samples_of(module, Example.of([x]), mode.captured, mode.captured.graph)
    sample = samples.get("the example")
    values = {(n.op, n["name"]): v for n, v in sample.leaves.items()}
    leaves = {n: values[n.op, n["name"]] for n in mode.plan.graph.nodes() if n.row.is_named}
    for got, truth in zip(run_plan(mode.plan, leaves, sample.sizes), sample.truth, strict=True):
        torch.testing.assert_close(got.double(), truth[0], rtol=1e-4, atol=1e-5)


def test_its_price_follows_from_what_it_computes_and_moves() -> None:
    def price(kind: str, features: int, size: int) -> float:
        module = Block(64, features)
        mode, device = plan_of(module, torch.randn(16, 64, size, size), choice(kind, "broad"))
        return plan_price(mode.plan, device).seconds

    assert price("tf32", 128, 40) < price("ieee", 128, 40) < price("ieee", 256, 40)
    assert price("ieee", 128, 20) < price("ieee", 128, 40)


def test_idle_processors_and_empty_tiles_are_counted() -> None:
    broad, slim = (w for w in every_schedule() if w.kernels is IMPLICIT)
    c = Convolution(1, 64, 128, 1, (12, 12), (10, 10), (3, 3), (1, 1), (0, 0), (1, 1))
    assert tile_products(broad, c) == tile_products(broad, replace(c, features=1, images=5))
    assert tile_products(slim, replace(c, features=64)) < tile_products(broad, c)


# --- how accurate they are ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pair() -> tuple[nn.Module, dict[str, nn.Module]]:
    """A convolution of 40 channels, and its twins of both classes, tiles of each size."""
    torch.manual_seed(0)
    module, x = nn.Conv2d(40, 66, 3, padding=1).eval(), torch.randn(2, 40, 6, 7)
    fast = {k: fast_of(module, [x], choice(*how), TARGETS[k]) for k, how in ALL.items()}
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        for kind, each in fast.items():
            patch.setenv("EMULATOR_PROCESSORS", "2" if kind in ON_FEW else "132")
            each(x)  # a library asks once how many there are
    return module, fast


ALL = {
    "ieee": ("ieee", "broad"),
    "tf32": ("tf32", "slim"),
    "strips": ("tf32", "broad", STRIPS),
    "strips of slim tiles": ("tf32", "slim", STRIPS),
    "patches": ("tf32", "features64", PATCHES),
    "patches of fp32 class": ("ieee", "features32", PATCHES),
}
# on few processors, so that blocks go on to other strips and patches
ON_FEW = ("strips", "patches")
TARGETS = {k: "cuda:sm_90" if "strips" in k else TARGET for k in ALL}
SIZES = (1.0, 1e-30, 1e-15, 1e4, 1e6, 1e15, 1e30)


@pytest.mark.parametrize("size", SIZES)
def test_images_of_any_size(pair: tuple[nn.Module, dict[str, nn.Module]], size: float) -> None:
    module, fast = pair
    torch.manual_seed(1)
    x = torch.randn(3, 40, 6, 7) * size
    with torch.no_grad():
        module.bias.mul_(0)
        truth, eager = truth_of(module, x), relative(module(x), truth_of(module, x))
        for kind, how in ALL.items():
            error = relative(fast[kind](x), truth)
            if how[0] == "ieee":
                assert error <= max(1.25 * eager, 1.2e-7), kind
            else:
                assert 1e-4 < error < 4e-4, kind  # ten bits of every operand


def test_small_places_beside_large_ones_keep_their_bits(
    pair: tuple[nn.Module, dict[str, nn.Module]],
) -> None:
    module, fast = pair
    torch.manual_seed(2)
    x = torch.randn(2, 40, 6, 14)
    x[..., 7:] *= 1e-12
    x[1] *= 1e10
    with torch.no_grad():
        module.bias.mul_(0)
        truth = truth_of(module, x)
        for kind in ALL:
            most = 3e-7 if ALL[kind][0] == "ieee" else 5e-4
            got = fast[kind](x)
            for n in (0, 1):
                for part in (slice(0, 6), slice(8, 14)):
                    assert relative(got[n, ..., part], truth[n, ..., part]) < most


def keeps_the_bits_of_columns(fast: nn.Module, module: nn.Module, kind: str) -> bool:
    """Is each place of an image whose columns have scales of their own as accurate as its class?
    Without a bias. What a kernel read too early is NaN, which is computed again in fp32: that is
    no error of ten bits."""
    torch.manual_seed(0)
    x = torch.randn(2, 40, 20, 9) * 10.0 ** torch.arange(-4, 5)
    with torch.no_grad():
        module.bias.mul_(0)
        got, truth = fast(x), truth_of(module, x)
    places = ((h, w) for h in range(20) for w in range(9))
    errors = [relative(got[..., h, w], truth[..., h, w]) for h, w in places]
    least = 0.0 if ALL[kind][0] == "ieee" else 1.5e-4
    return least < min(errors) and max(errors) < 5e-4


@pytest.mark.parametrize("kind", ALL)
def test_columns_of_any_size_keep_their_bits(
    pair: tuple[nn.Module, dict[str, nn.Module]], kind: str
) -> None:
    """test_random_convolutions.py puts faults into the kernels that this test then sees."""
    assert keeps_the_bits_of_columns(pair[1][kind], pair[0], kind)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e38])
@pytest.mark.parametrize("where", ["image", "weight"])
def test_special_values_are_where_the_definition_has_them(
    pair: tuple[nn.Module, dict[str, nn.Module]], kind: str, value: float, where: str
) -> None:
    module, fast = copy.deepcopy(pair[0]), copy.deepcopy(pair[1][kind])
    torch.manual_seed(3)
    x = torch.randn(2, 40, 6, 7)
    with torch.no_grad():
        if where == "image":
            x[1, 7, 2, 3] = value
        else:
            for m in (module, fast):
                m.weight[5, 3, 0, 1] = value
        got, truth = fast(x), truth_of(module, x)
    # where a weight meets padding alone, some of PyTorch's kernels leave its infinity out
    known = truth.isfinite()
    assert torch.equal(got.isnan(), truth.isnan())
    assert torch.equal(got[truth.isinf()].double(), truth[truth.isinf()])
    assert got[known].isfinite().all()
    most = 1e-6 if ALL[kind][0] == "ieee" else 1e-3
    scale = truth[known].abs().max()
    assert (got[known].double() - truth[known]).abs().max() <= most * scale


def test_in_the_life_of_a_module() -> None:
    """No images; other batches, strides, updated parameters, another state, copies."""
    torch.manual_seed(0)
    module = Block(5, 17).eval()
    fast = fast_of(copy.deepcopy(module), [torch.randn(2, 5, 6, 5)], choice("ieee"))
    with torch.no_grad():
        for shape in ((0, 5, 6, 5), (1, 5, 6, 5), (2, 5, 4, 9)):
            x = torch.randn(shape)
            torch.testing.assert_close(fast(x), module(x))
        with pytest.raises(RuntimeError):
            fast(torch.randn(2, 4, 6, 5))  # eager's own error
    check_life(fast, module, lambda n: [torch.randn(n, 5, 6, 5)], (2, 3, 1))


# --- what the planner asks -----------------------------------------------------------------------
def test_what_a_choice_is_told_is_the_convolutions_sizes() -> None:
    told: list[Convolution] = []

    def note(c: Convolution) -> None:
        told.append(c)

    module = nn.Conv2d(6, 36, (3, 2), (2, 1), (1, 0), (1, 3), groups=2)
    mode, _ = plan_of(Wrapped(module), torch.randn(4, 6, 9, 8), note)
    expected = Convolution(4, 6, 36, 2, (9, 8), (5, 5), (3, 2), (2, 1), (1, 0), (1, 3))
    assert set(told) == {expected} and expected.depth == 18 and expected.pixels == 100
    (node,) = (n for n in mode.plan.graph.nodes() if n.op == "conv")
    assert of_node(node) == expected


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).sigmoid()


def test_a_kernel_is_for_a_device_whose_choice_it_is() -> None:
    mode, _ = plan_of(Block(), torch.randn(2, 8, 9, 9), by_rule("ieee"))
    (group,) = mode.plan.groups
    assert isinstance(group.kernel, ConvolutionKernel)
    assert str(group.kernel) == "ieee: implicit mma_sync tiles of 64 features x 128 places"
    from refold.families import BY_NAME

    with pytest.raises(ValueError, match="convolutions are our kernels'"):
        BY_NAME["convolution"].schedule(group, DeviceModel.of(TARGET), None)
