"""Products of 16-bit elements: operands as they are, weights in two parts, results of 16 bits."""

from __future__ import annotations

import pytest
import torch

from .library import Product, Split
from .machine import DEVICE
from .products import empty, error, make, plain

pytestmark = pytest.mark.gpu
EMULATED = dict.fromkeys(
    ("test_native", "test_a_weight_in_two_parts", "test_native_rows_that_start_anywhere"), 1e6
)

EMULATED_ONLY = {"mode": ("bfloat",), "name": ("parts_half_wide_4", "parts_bfloat_generic_4")}

NATIVE = {"half": torch.float16, "bfloat": torch.bfloat16}


@pytest.mark.parametrize("schedule", ["tall", "small", "generic", "simt"])
@pytest.mark.parametrize("mode", NATIVE)
@pytest.mark.parametrize(
    "shape",
    [
        (256, 128, 64),
        (300, 515, 1000),
        (7, 9, 8),
        (4, 700, 4096),
        (1000, 10, 136),
        (1290, 1500, 3000),
        (4096, 2112, 3000),
    ],
    ids=str,
)
def test_native(mode: str, schedule: str, shape: tuple[int, int, int]) -> None:
    x, w = (t.to(NATIVE[mode]) for t in make(*shape))
    ref = x.double() @ w.double().T
    # of many tiles Hopper's does not promote: what is cut off grows with K (fp16 rounds by 1.4e-4)
    many = {"tall": 4000, "small": 1200}.get(schedule, 1 << 20)
    bound = 6e-6 if shape[0] > many else 2e-6
    assert error(plain(f"{mode}_{schedule}", x, w), ref) < bound


@pytest.mark.parametrize(
    "name",
    [
        *("parts_half_tall", "parts_half_wide_4", "parts_half_small_2"),
        *("parts_half_generic", "parts_half_simt"),
        *("parts_bfloat_tall", "parts_bfloat_generic_4", "parts_bfloat_simt"),
    ],
)
@pytest.mark.parametrize(
    "shape", [(256, 128, 64), (300, 515, 1000), (129, 130, 72), (4, 700, 4096)], ids=str
)
def test_a_weight_in_two_parts(name: str, shape: tuple[int, int, int]) -> None:
    """As near as the parts hold the weight: 22 bits in fp16, 16 in bf16; all of it in fp32."""
    mode = name.split("_")[1]
    dtype = NATIVE[mode]
    x, w = make(*shape)
    rows, cols, depth = shape
    first = w.to(dtype)
    parts = torch.zeros(cols, 2, -(-depth // 64) * 64, dtype=dtype, device=DEVICE)
    parts[:, 0, :depth], parts[:, 1, :depth] = first, w - first
    side = Split(w, "simt") if "simt" in name else Split(parts.view(cols, -1), mode)
    narrow, out = x.to(dtype), empty(rows, cols)
    Product(name, Split(narrow, mode), side, (), (out,))()
    bound = 1e-6 if mode == "half" or "simt" in name else 1e-5
    assert error(out, narrow.double() @ w.double().T) < bound


@pytest.mark.parametrize(
    "name",
    [
        *("half_tall", "half_small_2"),
        *("bfloat_wide", "bfloat_wide_8", "bfloat_small", "bfloat_generic"),
    ],
)
@pytest.mark.parametrize("skew", [0, 2, 3])
@pytest.mark.parametrize("cols", [640, 644, 646, 645])
def test_results_of_16_bits(name: str, cols: int, skew: int) -> None:
    """Rows that start at multiples of 8 bytes, of 4 and anywhere; and nothing beyond the last."""
    mode = name.split("_")[0]
    dtype, rows, depth = NATIVE[mode], 300, 2048
    x, w = (t.to(dtype) for t in make(rows, cols, depth))
    room = torch.full((rows * cols + 64,), -7.0, dtype=dtype, device=DEVICE)
    out = room[skew : skew + rows * cols].view(rows, cols)
    Product(f"narrow_{name}", Split(x, mode), Split(w, mode), (), (out,))()
    assert error(out, x.double() @ w.double().T) < (4e-4 if mode == "half" else 3e-3)
    assert (room[:skew] == -7).all() and (room[skew + rows * cols :] == -7).all()
    wider = empty(rows, cols)
    Product(f"plain_{mode}_tall", Split(x, mode), Split(w, mode), (), (wider,))()
    away = (out.double() - wider.double()).abs()
    # at most one unit of 16 bits in the last place from the sums of another schedule
    unit = 2.0**-10 if mode == "half" else 2.0**-7
    assert (away <= unit * wider.double().abs() + 1e-3).all()


@pytest.mark.parametrize("mode", NATIVE)
@pytest.mark.parametrize("shape", [(300, 515, 1001), (7, 9, 3)], ids=str)
def test_native_rows_that_start_anywhere(mode: str, shape: tuple[int, int, int]) -> None:
    x, w = (t.to(NATIVE[mode]) for t in make(*shape))
    assert error(plain(f"{mode}_generic", x, w), x.double() @ w.double().T) < 2e-6
