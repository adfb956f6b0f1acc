"""Batches of products: tiles keep to their own product's rows and to its weight's columns."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

from agree import check_close
from refold import introspect, pipeline
from zoo.values import OtherWayRound, Scores

from .library import Product
from .machine import DEVICE, load
from .products import empty, error, make, sides
from .test_emitted import TARGETS, emitted

pytestmark = pytest.mark.gpu
EMULATED = {
    "test_each_product_has_its_own_weight": 1e6,
    "test_exceptional_values_stay_in_their_product": 3e6,
    "test_turned_sides": 1e6,
}

EMULATED_ONLY = {
    "name": ("ieee_tall", "ieee_small_2", "direct_tall", "ieee_generic"),
    "turned": ("cuda:sm_90",),
}

NAMES = [
    *("ieee_tall", "ieee_wide", "ieee_small", "ieee_tall_8", "ieee_small_2"),
    *("ieee_small_16", "tf32_tall", "direct_tall", "direct_tall_4"),
    *("ieee_generic", "ieee_generic_4"),
]
# products, rows of each, columns, depth
SHAPES = [
    *((1, 300, 200, 100), (2, 1, 1, 1), (3, 257, 129, 65), (5, 64, 300, 1000), (40, 33, 17, 64)),
    *((7, 256, 256, 64), (2, 1030, 520, 257), (300, 130, 128, 96), (3, 700, 1300, 3000)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_each_product_has_its_own_weight(name: str, shape: tuple[int, int, int, int]) -> None:
    batches, rows, cols, depth = shape
    x, w = make(batches * rows, batches * cols, depth)
    bias, factor = torch.randn(cols, device=DEVICE), torch.randn(batches * rows, device=DEVICE)
    residual, number = (
        torch.randn(batches * rows, cols, device=DEVICE),
        torch.ones(1, device=DEVICE),
    )
    out = empty(batches * rows, cols)
    inputs = (bias, factor, residual, number)
    p = Product(f"batch_{name}", *sides(name, x, w), inputs, (out,), batches=batches)
    product = torch.bmm(
        x.double().view(batches, rows, depth), w.double().view(batches, cols, depth).mT
    )
    more = residual.double() * number
    scaled = bias * factor[:, None]
    ref = product.view(batches * rows, cols) * factor[:, None] + scaled + more
    for _ in range(2):
        out.fill_(float("nan"))
        p()
        assert error(out, ref, scaled, more) < (1e-3 if "tf32" in name else 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_exceptional_values_stay_in_their_product(name: str) -> None:
    batches, rows, cols, depth = 3, 200, 300, 100
    x, w = make(batches * rows, batches * cols, depth)
    x = x.abs() + 0.1
    x[0, 0], x[250, 3], x[599, 99] = (float(v) for v in ("inf", "nan", "-inf"))
    w[301, 5], w[899, 0] = float("inf"), float("nan")
    inputs = (empty(cols).zero_(), empty(batches * rows).fill_(1.0))
    inputs += (empty(batches * rows, cols).zero_(), empty(1).zero_())
    out = empty(batches * rows, cols)
    Product(f"batch_{name}", *sides(name, x, w), inputs, (out,), batches=batches)()
    ref = torch.bmm(x.double().view(3, rows, depth), w.double().view(3, cols, depth).mT)
    ref = ref.view(batches * rows, cols).float()
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(test(out), test(ref)), test.__name__
    finite = torch.isfinite(ref)
    assert error(out[finite], ref[finite].double()) < (6e-4 if "tf32" in name else 5e-7)


class Mixing(nn.Module):
    """A parameter for each of a batch, two values, and rows of several axes for one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 400, 256) / 16)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = torch.bmm(x, self.weight.mT)
        b = torch.einsum("bij,bjk->bik", a, y).relu()
        return a.amax(1), b, torch.einsum("nhk,nck->nhc", b, y)

    def inputs(self) -> list[torch.Tensor]:
        return [torch.randn(12, 700, 256), torch.randn(12, 400, 333)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("cls", [Scores, Mixing])
def test_emitted(cls: type[nn.Module], target: str) -> None:
    torch.manual_seed(0)
    module = cls().to(DEVICE)
    inputs = [x.to(DEVICE) for x in module.inputs()]
    text = emitted(module, inputs, target)
    assert "kBatched = true" in text
    module.requires_grad_(False)
    fast = pipeline.adopt(load(text, cls).ModelNew, module)
    oracle = copy.deepcopy(module).double()
    for first in (None, 3):  # another number of products than it was captured with
        some = inputs if first is None or cls is Mixing else [x[:first] for x in inputs]
        assert introspect.fallback_reason(fast, some) is None
        with torch.no_grad():
            check_close(fast(*some), module(*some), oracle(*(x.double() for x in some)))


@pytest.fixture(scope="module", params=TARGETS)
def turned(request) -> tuple[nn.Module, nn.Module]:
    module = OtherWayRound().to(DEVICE)
    text = emitted(module, [x.to(DEVICE) for x in module.inputs()], request.param)
    sides = re.findall(r"(?<!\w)transposed\((?:[aw]\(|\w+_operand)", text.partition("# Below")[0])
    assert len(sides) == 4 and ".mT" not in text
    return module, pipeline.adopt(load(text, OtherWayRound).ModelNew, module)


SIZES = [(1030, 900, 770), (33, 17, 5), (2, 3, 4), (2000, 130, 4097), (5001, 64, 256), (70, 4, 12)]
SIZES += [(600, 12, 8), (26000, 12, 8)]  # a cluster of blocks, and what no cluster holds


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_turned_sides(turned: tuple[nn.Module, nn.Module], sizes: tuple[int, int, int]) -> None:
    module, fast = turned
    depth, rows, cols = sizes
    some = [torch.randn(depth, n, device=DEVICE) * 10.0 ** (n % 5) for n in (rows, cols)]
    some[0][:, 0] *= 1e-20  # a column's scale is its own
    some[1][depth // 2] *= 1e5  # and alike for all blocks that have a share of it
    assert introspect.fallback_reason(fast, some) is None
    check_close(
        fast(*some), module(*some), copy.deepcopy(module).double()(*(x.double() for x in some))
    )


def test_exceptional_values_of_turned_sides(turned: tuple[nn.Module, nn.Module]) -> None:
    module, fast = turned
    a, b = (x.to(DEVICE).abs() + 0.1 for x in module.inputs())
    a[0, 0], a[514, 899], b[5, 7], b[300, 769] = (float(v) for v in ("inf", "nan", "-inf", "nan"))
    for out, ref in zip(fast(a, b), module(a.double(), b.double()), strict=True):
        ref = ref.float()
        for test in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(test(out), test(ref)), test.__name__
