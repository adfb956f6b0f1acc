"""Products of few rows or columns, whose accuracy is measured as kernels sum them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import refold
from refold.ir import grouped, leaf, make
from refold.ir.rounded import THIN, run_exact, run_rounded

DEPTH = 8192


def test_few_are_as_many_as_for_the_kernels() -> None:
    header = Path(refold.__file__).parent / "families/matmul/cpu/skinny.h"
    found = re.search(r"kSkinny = (\d+);", header.read_text())
    assert found is not None and int(found[1]) == THIN


@pytest.mark.parametrize(("rows", "features"), [(64, 1), (64, THIN), (1, 64), (THIN, 64), (1, 1)])
def test_thin_products_are_summed_in_parts(rows: int, features: int) -> None:
    torch.manual_seed(0)
    x, w = torch.rand(1, 1, 1, rows, DEPTH), torch.rand(1, 1, 1, features, DEPTH)
    left = leaf("input", x.shape, torch.float32, name="x", index=0)
    right = leaf("input", w.shape, torch.float32, name="w", index=1)
    product, given = make("linear", left, right), {left: x, right: w}
    made = run_rounded([product], given, {})[product]
    exact = run_exact([product], given, {})[product]
    assert made.shape == exact.shape == (1, 1, 1, rows, features) and made.dtype == torch.float32
    assert made.is_contiguous()  # as PyTorch's, whose results the price of a plan asks for
    in_order = torch.zeros(rows, features)
    for k in range(DEPTH):
        in_order += x[0, 0, 0, :, k : k + 1] * w[0, 0, 0, :, k]
    assert (made - exact).norm() < 0.25 * (in_order - exact[0, 0, 0]).norm()


@pytest.mark.parametrize("depth", [1, 31, 32, 100])
def test_thin_products_of_16_bits_are_rounded_once(depth: int) -> None:
    torch.manual_seed(0)
    x, w = (torch.randn(2, 1, 1, n, depth).bfloat16() for n in (3, 40))
    left = leaf("input", x.shape, torch.bfloat16, name="x", index=0)
    right = leaf("input", w.shape, torch.bfloat16, name="w", index=1)
    product = make("linear", left, right)
    made = run_rounded([product], {left: x, right: w}, {})[product]
    wanted = x.double() @ w.double().mT
    assert made.dtype == torch.bfloat16
    assert ((made.double() - wanted).abs() <= 2**-8 * wanted.abs() + 1e-5).all()


def test_of_float64_the_rounded_run_is_the_exact_one() -> None:
    """Else the truth would be no nearer to what is measured than to eager."""
    torch.manual_seed(0)
    x, w = (torch.randn(1, 1, 1, n, 96, dtype=torch.float64) for n in (18, 3))
    left = leaf("input", x.shape, torch.float64, name="x", index=0)
    right = leaf("input", w.shape, torch.float64, name="w", index=1)
    product, given = make("linear", left, right), {left: x, right: w}
    made = run_rounded([product], given, {})[product]
    assert torch.equal(made, run_exact([product], given, {})[product])


@pytest.mark.parametrize(
    ("shape", "kernel", "window"),
    [
        ((2, 6, 11), (6, 1, 3), ((2,), (1,), (1,), 6)),
        ((3, 8, 9, 7), (12, 2, 3, 2), ((1, 2), (0, 3), (2, 1), 4)),
        ((2, 4, 5, 6, 4), (4, 2, 1, 3, 2), ((1, 1, 2), (1, 0, 1), (1, 2, 1), 2)),
    ],
)
def test_convolutions_of_many_groups_meet_no_threads_for_each(
    shape: tuple[int, ...], kernel: tuple[int, ...], window: tuple[Any, ...], monkeypatch: Any
) -> None:
    """The library's loop over groups took a second for 32 images where processors were shared."""
    torch.manual_seed(0)
    strides, paddings, dilations, groups = window
    x, w, b = torch.randn(shape), torch.randn(kernel), torch.randn(kernel[0])
    given = {
        leaf("input", v.shape, v.dtype, name=name, index=i): v
        for i, (name, v) in enumerate((("x", x), ("w", w), ("b", b)))
    }
    image = make(
        "conv", *given, strides=strides, paddings=paddings, dilations=dilations, groups=groups
    )
    library = getattr(torch.nn.functional, f"conv{len(strides)}d")
    truth = library(x.double(), w.double(), b.double(), strides, paddings, dilations, groups)

    def refuse(*args: Any) -> None:
        raise AssertionError("the library was called")

    monkeypatch.setattr(torch.nn.functional, f"conv{len(strides)}d", refuse)
    for room in (1, grouped.ROOM):
        monkeypatch.setattr(grouped, "ROOM", room)
        made = run_exact([image], given, {})[image]
        assert made.shape == image.shape and made.dtype == torch.float64
        torch.testing.assert_close(made.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
