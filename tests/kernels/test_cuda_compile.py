"""Compiles the CUDA kernels for their targets and reads what ptxas says: no spills, no stack, no
C75xx (matrix products serialised, register budgets ignored). Needs nvcc, no GPU."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.emitted import source
from tests.gpu.library import HERE, KERNELS, SOURCES, compile_source, nvcc
from tests.gpu.row_models import MODELS

MOST_REGISTERS = 168  # a thread of 384, at entry


def problems(report: str, stack: int = 0) -> list[str]:
    """Lines of a ptxas report that must not be there; an empty report is a problem too.

    stack: the bytes that a kernel may keep on its stack by intent (sin and cos do, for large
    arguments); nothing may be spilled.
    """
    kernels = re.findall(r"Compiling entry function '(\S+)'", report)
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", report)
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", report)]
    found = re.findall(r".*\bC75\d\d\b.*", report)
    if not kernels or len(spills) != len(kernels) or len(registers) != len(kernels):
        found.append(f"{len(kernels)} kernels reported, {len(spills)} with their use of the stack")
    found += [
        f"{k}: stack, spills {s}"
        for k, s in zip(kernels, spills, strict=False)
        if int(s[0]) > stack or s[1:] != ("0", "0")
    ]
    found += [
        f"{k}: {n} registers"
        for k, n in zip(kernels, registers, strict=False)
        if n > MOST_REGISTERS
    ]
    return found


def test_kernels_compile_without_spills(tmp_path: Path) -> None:
    # nvcc missing is a RuntimeError that says so: this promise cannot be kept unseen
    with ThreadPoolExecutor(2) as pool:
        reports = pool.map(lambda s: compile_source(HERE / s, tmp_path / f"{s}.o"), SOURCES)
        for source, report in zip(SOURCES, reports, strict=True):
            assert problems(report) == [], source


@pytest.mark.parametrize("model", MODELS)
def test_rows_and_columns_compile_without_spills(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    assert problems(compile_source(file, tmp_path / "x.o"), 32 if model == "Functions" else 0) == []


def early_accesses(ptx: str) -> list[str]:
    """Kernels that access memory before they have waited for the kernel before, or never wait."""
    found = []
    for text in ptx.split(".entry ")[1:]:
        before, waits, _ = text.partition("griddepcontrol.wait")
        if not waits or re.search(r"\b(ld|st|atom|red)\.global", before):
            found.append(text.split("(")[0])
    return found if ".entry " in ptx else ["no kernel"]


@pytest.mark.parametrize("model", ["Affine", "LayerNorm", "ColumnsOfSlices"])
def test_nothing_is_read_before_the_previous_kernel_has_ended(model: str, tmp_path: Path) -> None:
    file = tmp_path / f"{model}.cu"
    file.write_text(source(model))
    arch = "-gencode=arch=compute_90,code=compute_90"
    command = [nvcc(), "-std=c++17", "-O3", arch, "-ptx", f"-I{KERNELS}", "-o", "-", str(file)]
    ptx = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert early_accesses(ptx) == []


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


GOOD = """ptxas info    : Compiling entry function 'k' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""


def test_the_check_sees_what_it_must() -> None:
    assert problems(GOOD) == []
    assert problems("") != []
    assert problems(GOOD.replace("0 bytes spill stores", "8 bytes spill stores")) != []
    assert (
        problems(GOOD + "ptxas info : (C7510) Potential Performance Loss: wgmma serialized") != []
    )
    assert problems(GOOD.replace("168", "200")) != []
    stack = GOOD.replace("0 bytes stack", "32 bytes stack")
    assert problems(stack) != [] and problems(stack, 32) == []
