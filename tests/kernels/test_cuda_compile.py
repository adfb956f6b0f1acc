"""Compiles the CUDA kernels for their targets and reads what ptxas says: no spills, no stack, no
C75xx (matrix products serialised, register budgets ignored). Needs nvcc, no GPU."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu.library import HERE, SOURCES, compile_source

MOST_REGISTERS = 168  # a thread of 384, at entry


def problems(report: str) -> list[str]:
    """Lines of a ptxas report that must not be there; an empty report is a problem too."""
    kernels = re.findall(r"Compiling entry function '(\S+)'", report)
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", report)
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", report)]
    found = re.findall(r".*\bC75\d\d\b.*", report)
    if not kernels or len(spills) != len(kernels) or len(registers) != len(kernels):
        found.append(f"{len(kernels)} kernels reported, {len(spills)} with their use of the stack")
    found += [
        f"{k}: stack, spills {s}" for k, s in zip(kernels, spills, strict=False) if set(s) != {"0"}
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
