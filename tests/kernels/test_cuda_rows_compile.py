"""Compiles emitted bodies of rows and columns for their targets; see test_cuda_compile.py."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from tests.gpu.emitted import DTYPES, source
from tests.gpu.library import KERNELS, compile_source, nvcc
from tests.gpu.row_models import MODELS
from tests.kernels.test_cuda_compile import problems


@pytest.mark.parametrize("model", MODELS)
def test_rows_and_columns_compile_without_spills(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    assert problems(compile_source(file, tmp_path / "x.o"), 32 if model == "Functions" else 0) == []


# one of each kind; that the others compile is seen where they run
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", ["Affine", "LayerNorm", "Moments"])
def test_other_dtypes_compile_without_spills(
    model: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model, dtype))
    assert problems(compile_source(file, tmp_path / "x.o")) == []


def early_accesses(ptx: str) -> list[str]:
    """Kernels that access memory before they have waited for the kernel before, or never wait."""
    found = []
    for text in ptx.split(".entry ")[1:]:
        before, waits, _ = text.partition("griddepcontrol.wait")
        if not waits or re.search(r"\b(ld|st|atom|red)\.global", before):
            found.append(text.split("(")[0])
    return found if ".entry " in ptx else ["no kernel"]


def ptx_of(model: str, folder: Path) -> str:
    file = folder / f"{model}.cu"
    file.write_text(source(model))
    arch = "-gencode=arch=compute_90,code=compute_90"
    command = [nvcc(), "-std=c++17", "-O3", arch, "-ptx", f"-I{KERNELS}", "-o", "-", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("model", ["Affine", "LayerNorm", "ColumnsOfSlices"])
def test_nothing_is_read_before_the_previous_kernel_has_ended(model: str, tmp_path: Path) -> None:
    assert early_accesses(ptx_of(model, tmp_path)) == []


def test_rows_that_are_held_are_read_once(tmp_path: Path) -> None:
    ptx = ptx_of("Softmax", tmp_path)  # three passes over one operand, two with exp
    entries = [text for text in ptx.split(".entry ")[1:] if "rows_held" in text.split("(")[0]]
    # four units of four columns, or eight of one, of one row or of two
    assert sorted(text.count("ld.global.nc") for text in entries) == [4, 4, 8, 8]
    assert sorted(text.count("ex2.approx") for text in entries) == [8, 8, 16, 16]


def test_early_accesses_are_seen() -> None:
    good = ".entry k(\n griddepcontrol.wait;\n ld.global.nc.f32 %f1, [%rd1];\n"
    assert early_accesses(good) == []
    assert early_accesses(good.replace("griddepcontrol.wait;", "")) == ["k"]
    assert early_accesses(good.replace(" grid", " st.global.f32 [%rd1], %f1;\n grid")) == ["k"]
    assert early_accesses("") != []


@pytest.mark.parametrize("model", ["Affine", "Softmax", "Moments"])
def test_rows_and_columns_compile_for_sm_80(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    assert problems(compile_source(file, tmp_path / "x.o", "80")) == []
