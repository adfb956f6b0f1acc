"""Compiles passes over channels that registers hold; see test_cuda_compile.py."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.gpu.library import KERNELS, compile_source, nvcc
from tests.kernels.test_cuda_compile import problems
from tests.kernels.test_cuda_rows_compile import early_accesses

BODY = """
#include "held_channels.cuh"
namespace rf {
struct Softmax128 : ChannelsBody {
  Reused<float, 0> x;
  const float* bias;
  float* result;
  long width;
  static constexpr int kReused = 1;
  template <class V> struct Reduced { V max; SumOfExp<V> sum; };
  using Monoids = List<Folded<LargerOf>, Sum>;
  template <class V, class R, class C>
  RF_FN V term(Step<0>, const Reduced<V>& r, R row, C col) const {
    return full<V>(x, row * width, col);
  }
  template <class V> RF_FN void set(Step<0>, Reduced<V>& r, V value) const { r.max = value; }
  template <class V, class R, class C>
  RF_FN V term(Step<1>, const Reduced<V>& r, R row, C col) const {
    return exp(full<V>(x, row * width, col) - r.max);
  }
  template <class V> RF_FN void set(Step<1>, Reduced<V>& r, V value) const { r.sum = value; }
  template <class V, class R, class C>
  RF_FN void store(const Reduced<V>& r, R row, C col, V kept) const {
    put(result, row * width, col, kept / r.sum + scalar<V>(bias + (row % 128L)));
  }
};
template __global__ void held_channels_kernel<Softmax128, 128>(const __grid_constant__ Softmax128,
                                                               long, long, unsigned);
}  // namespace rf
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "channels.cu"
    found.write_text(BODY)
    return found


def ptx_of(file: Path) -> str:
    arch = "-gencode=arch=compute_90,code=compute_90"
    command = [nvcc(), "-std=c++17", "-O3", arch, "-ptx", *(f"-I{folder}" for folder in KERNELS)]
    done = subprocess.run([*command, "-o", "-", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_channels_that_are_held_are_read_once(file: Path) -> None:
    """Each value and its exponential once, one reciprocal a place, and stores behind loads."""
    ptx = ptx_of(file)
    assert early_accesses(ptx) == []
    stores = [m.start() for m in re.finditer(r"st\.global\.f32", ptx)]
    of_thread = 128 // 4  # channels; four threads have a place
    assert ptx.count("ex2.approx") == of_thread
    assert len(re.findall(r"(div|rcp)\.\w+\.f32", ptx)) == 1
    # the first 16 results are stored behind the loads of all that they need
    assert ptx.count("ld.global.f32", 0, stores[0]) == of_thread + 16


@pytest.mark.parametrize("target", ["80", "90a"])
def test_held_channels_compile_without_spills(target: str, file: Path) -> None:
    report = compile_source(file, file.with_suffix(".cubin"), target)
    assert problems(report) == []
    registers = re.search(r"Used (\d+) registers", report)
    assert registers is not None and int(registers[1]) <= 80  # three blocks of 256 threads
