"""The share of a GPU's time that our kernels take (bench/gpu_time.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import gpu_time


def test_our_kernels_are_known_by_their_namespace() -> None:
    kernels = [
        ("void rf::matmul_sm90<rf::Schedule<rf::Ieee>, Body>(CUtensorMap, CUtensorMap)", 30.0),
        ("_ZN2rf16hi_lo_split_rowsILb1ELb1ELi128EEEvPKfliiP6__halfPf", 10.0),
        ("triton_per_fused_native_layer_norm_0", 20.0),
        ("void perf::other(float*)", 40.0),
    ]
    assert gpu_time.share(kernels) == pytest.approx(0.4)
    assert gpu_time.share([]) == 0.0
