"""Compiles emitted bodies of rows and columns for their targets; see test_cuda_compile.py."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from refold.families.rows import schedules
from tests.gpu.emitted import DTYPES, source
from tests.gpu.library import HERE, KERNELS, compile_source, nvcc
from tests.gpu.row_models import MODELS
from tests.kernels.test_cuda_compile import problems


@pytest.mark.parametrize("model", MODELS)
def test_rows_and_columns_compile_without_spills(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    stack = 32 if model == "Functions" else 0
    assert problems(compile_source(file, tmp_path / "x.cubin"), stack) == []


# one of each kind; that the others compile is seen where they run
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", ["Affine", "LayerNorm", "Moments"])
def test_other_dtypes_compile_without_spills(
    model: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model, dtype))
    assert problems(compile_source(file, tmp_path / "x.cubin")) == []


def early_accesses(ptx: str) -> list[str]:
    """Kernels that may access memory before they have waited for the kernel before.

    The assembler moves loads of memory that is said to be constant (.nc) up before the wait: a mean
    was once read before the kernel that computed it had ended.
    """
    found = []
    for text in ptx.split(".entry ")[1:]:
        before, waits, after = text.partition("griddepcontrol.wait")
        early = re.search(r"\b(ld|st|atom|red)\.global", before)
        if not waits or early or re.search(r"\bld\.global\S*\.nc\b", after):
            found.append(text.split("(")[0])
    return found if ".entry " in ptx else ["no kernel"]


def ptx_of_file(file: Path, target: str = "90") -> str:
    arch = f"-gencode=arch=compute_{target},code=compute_{target}"
    includes = [*(f"-I{folder}" for folder in KERNELS), f"-I{HERE}"]
    command = [nvcc(), "-std=c++17", "-O3", arch, "-ptx", *includes, "-o", "-", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ptx_of(model: str, folder: Path) -> str:
    file = folder / f"{model}.cu"
    file.write_text(source(model))
    return ptx_of_file(file)


@pytest.mark.parametrize("model", ["Affine", "LayerNorm", "ColumnsOfSlices"])
def test_nothing_is_read_before_the_previous_kernel_has_ended(model: str, tmp_path: Path) -> None:
    assert early_accesses(ptx_of(model, tmp_path)) == []


@pytest.mark.parametrize("file", ["direct.cu", "sinks.cu", "generic.cu", "simt.cu"])
def test_nor_is_what_products_read(file: str) -> None:
    assert early_accesses(ptx_of_file(HERE / file, "90a")) == []


def test_rows_that_are_held_are_read_once(tmp_path: Path) -> None:
    ptx = ptx_of("Softmax", tmp_path)  # three passes over one operand, two with exp
    entries = [
        text for text in ptx.split(".entry ")[1:] if "rows_register_resident" in text.split("(")[0]
    ]
    # four or eight units of four columns; eight of one, of a row or of several, or 16 of a long row
    assert sorted(text.count("ld.global") for text in entries) == [4] * 2 + [8] * 9 + [16]
    assert sorted(text.count("ex2.approx") for text in entries) == [8] * 8 + [16] * 3 + [32]


def test_what_is_computed_twice_is_rounded_twice(tmp_path: Path) -> None:
    """A product that is not marked as rounded is fused by ptxas with the sum that takes it."""
    ptx = ptx_of("ScaledSoftmax", tmp_path)
    assert "mul.rn.f32" in ptx
    assert not re.search(r"mul.f32\s[^;]*0f430C0000;", ptx)  # by 140


CUTS = """
#include "row_partition.cuh"
template <class V> void print(bool again, bool roomy) {
  constexpr int lanes = rf::LanesOf<V>::count;
  for (long width = lanes; width < 33000; width += lanes) {
    const rf::RowPartition<V> cut(100000, width, again, roomy);
    const rf::ResidentShape as = rf::ResidentShapes<V>::of[cut.shape];
    if (cut.strategy != cut.register_resident) continue;
    std::printf("%d %d ", roomy, again);
    std::printf("%d %ld %d %d ", lanes, cut.units, cut.threads, rf::ResidentShapes<V>::block);
    std::printf("%d %d\\n", as.units, as.threads);
  }
}
int main() {
  std::printf("%ld\\n", rf::kMultiBlockFrom);
  for (bool roomy : {false, true})
    for (bool again : {false, true}) print<rf::Vec4>(again, roomy), print<rf::Real>(again, roomy);
}
"""


def test_rows_that_are_held_fit(tmp_path: Path) -> None:
    source, program = tmp_path / "cuts.cu", tmp_path / "cuts"
    source.write_text(CUTS)
    includes = [f"-I{folder}" for folder in KERNELS]
    command = [nvcc(), "-std=c++17", *includes, "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    split_from, *lines = lines.splitlines()
    assert int(split_from) == schedules.SPLIT_FROM
    cuts = [tuple(map(int, line.split())) for line in lines]
    # whose statistics are taken in as many passes as there are
    held = {0: schedules.HELD_CRAMPED, 1: schedules.HELD}
    for roomy, most in held.items():
        for each, longest in ((4, most), (1, schedules.HELD_SINGLY)):
            found = (c[2] * c[3] for c in cuts if c[:3] == (roomy, 1, each))
            assert max(found) == longest
    for _, _, lanes, units, threads, block, each, known in cuts:
        assert threads in (1, 2, 4, 8, 16) or threads % 32 == 0
        assert threads <= block and known in (0, threads)
        assert units <= threads * each
        # of single columns the first half of a thread's is read without a test
        assert lanes == 4 or each // 2 * threads <= units


def test_early_accesses_are_seen() -> None:
    good = ".entry k(\n griddepcontrol.wait;\n ld.global.f32 %f1, [%rd1];\n"
    assert early_accesses(good) == []
    assert early_accesses(good.replace("griddepcontrol.wait;", "")) == ["k"]
    assert early_accesses(good.replace(" grid", " st.global.f32 [%rd1], %f1;\n grid")) == ["k"]
    for words in ("nc", "nc.L1::no_allocate.v4", "L1::no_allocate.nc"):
        assert early_accesses(good.replace("global.f32", f"global.{words}.f32")) == ["k"]
    assert early_accesses("") != []


@pytest.mark.parametrize("model", ["Affine", "Softmax", "Moments"])
def test_rows_and_columns_compile_for_sm_80(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    assert problems(compile_source(file, tmp_path / "x.cubin", "80")) == []
