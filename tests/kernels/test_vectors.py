"""Our vectors of floats (kernels/cpu/vectors.h) have the bits of PyTorch's."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kernels.test_cpu_product import AT_HAND, LEVELS, module

OURS = [x for x in LEVELS[1:] if AT_HAND in LEVELS[LEVELS.index(x) :]]
BODIES = (Path(__file__).parent / "vectors.cpp").read_text()
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 1e-45, -1e-40, 3.4e38)


def hard() -> torch.Tensor:
    """Special values, and numbers of every size."""
    torch.manual_seed(3)
    sizes = torch.randn(3000) * 10.0 ** torch.randint(-40, 38, (3000,))
    return torch.cat([torch.tensor(SPECIAL), torch.randn(3000) * 4, sizes])


def bits(x: torch.Tensor) -> torch.Tensor:
    """Of NaNs only that they are."""
    return torch.where(x.isnan(), torch.full_like(x, math.nan), x).view(torch.int32)


@pytest.mark.parametrize("level", OURS)
def test_every_function_has_the_bits_of_pytorchs(level):
    ours, theirs = (
        module(level, BODIES, defines, ["run.h", "narrow.h" if defines else "lanes.h"])
        for defines in ([], ["#define RF_VECTORS"])
    )
    x = hard()
    pairs = torch.cartesian_prod(torch.tensor(SPECIAL), torch.tensor(SPECIAL))
    for a, b in ((x, x.roll(1)), pairs.T, *((x[:n], x[-n:]) for n in range(1, 34))):
        a, b = a.contiguous(), b.contiguous()
        made = []
        for kernels in (ours, theirs):
            out = torch.full((kernels.results() * len(a) + 16,), 7.0)
            kernels.every(a, b, out, len(a))
            assert (out[-16:] == 7.0).all(), "written beyond the end"
            made.append(bits(out[:-16].reshape(-1, len(a))))
        same = (made[0] == made[1]).all(1)
        assert same.all(), f"results {(~same).nonzero().flatten().tolist()} of {len(a)} numbers"
