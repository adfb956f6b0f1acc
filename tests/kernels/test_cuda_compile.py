"""Compiles the CUDA kernels for their targets and reads what ptxas says: no spills, no stack, no
C75xx (matrix products serialised, register budgets ignored). Needs nvcc, no GPU.

python tests/kernels/test_cuda_compile.py --write     records registers and shared memory of each
kernel in tests/golden/cuda_resources.csv; the diff is what a change really cost
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest

from tests.gpu.library import HERE, compile_source, nvcc

RECORD = Path(__file__).parents[1] / "golden" / "cuda_resources.csv"
# A representative set, about 60 s of one processor: every kernel family and sink, each family for
# the oldest target that it has to run on.
SET = (
    ("systems.cu", "90a"),
    ("plain.cu", "90a"),
    ("direct.cu", "90a"),
    ("generic.cu", "80"),
    ("simt.cu", "80"),
)
# GPUs that run Ampere's kernels with less shared memory for a block than an A100: 99 KiB of 163
SMALLER, MOST_SHARED = ("86", "89"), 99 * 1024
STORAGES = (
    *(f"GenericSharedStorage<Generic<Ieee>, {b}>" for b in ("Copy", "Operands", "AllRows", "Both")),
    *(f"GenericSharedStorage<Generic<Tf32, 8>, {b}>" for b in ("AllColumns", "StoreMoments")),
    *(f"GenericSharedStorage<Generic<Native<Half, 2>>, {b}>" for b in ("GeluMax", "ScaleSoftmax")),
    *(f"ConvolutionStorage<GenericConvolution<{m}, Broad>>" for m in ("Ieee", "Tf32")),
)
MOST_REGISTERS = {"matmul_sm90": 168}  # a thread of 384, at entry; others: what a thread can have


@dataclass(frozen=True, order=True)
class Resources:
    """What ptxas says of one kernel; bytes, and registers of one thread."""

    target: str
    kernel: str
    registers: int
    shared: int
    stack: int
    spilled: int


def compiler() -> str:
    """nvcc's release, on which registers depend."""
    said = subprocess.run([nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    assert found is not None, said
    return found[1]


def resources(report: str) -> list[Resources]:
    """The kernels of a ptxas report, by name; raises ValueError for one that it cannot read."""
    names = subprocess.run(["c++filt"], input=report, capture_output=True, text=True, check=True)
    found = []
    for part in names.stdout.split("Compiling entry function '")[1:]:
        kernel, target = re.match(r"(?:void )?(.*)' for 'sm_(\w+)'", part).groups()  # type: ignore
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", part)
        registers = re.search(r"Used (\d+) registers", part)
        if stack is None or registers is None:
            raise ValueError(f"{kernel}: no use of the stack or of registers in:\n{part}")
        shared = re.search(r"(\d+) bytes smem", part)
        found.append(
            Resources(
                target=target,
                kernel=re.sub(r"\(.*\)$", "", kernel.replace("rf::", "")),
                registers=int(registers[1]),
                shared=int(shared[1]) if shared else 0,
                stack=int(stack[1]),
                spilled=int(stack[2]),
            )
        )
    return found


def problems(report: str, stack: int = 0) -> list[str]:
    """What must not be in a ptxas report; an empty report is a problem too.

    stack: the bytes that a kernel may keep on its stack by intent (sin and cos do, for large
    arguments); nothing may be spilled.
    """
    found = re.findall(r".*\bC75\d\d\b.*", report)
    kernels = resources(report)
    if not kernels:
        found.append("no kernels")
    for k in kernels:
        if k.stack > stack or k.spilled:
            found.append(f"{k.kernel}: {k.stack} bytes of stack, {k.spilled} spilled")
        most = MOST_REGISTERS.get(k.kernel.split("<")[0], 255)
        if k.registers > most:
            found.append(f"{k.kernel}: {k.registers} registers of {most}")
    return found


def reports(folder: Path) -> list[str]:
    """What ptxas says of the representative set."""

    def one(at: tuple[str, str]) -> str:
        source, target = at
        return compile_source(HERE / source, folder / f"{source}.{target}.cubin", target)

    # nvcc missing is a RuntimeError that says so: this promise cannot be kept unseen
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, SET))


def recorded() -> tuple[str, list[Resources]]:
    """The compiler and the kernels of the record."""
    with RECORD.open() as file:
        release = file.readline().strip().removeprefix("# nvcc ")
        rows = [
            Resources(r["target"], r["kernel"], *(int(r[f.name]) for f in fields(Resources)[2:]))
            for r in csv.DictReader(file)
        ]
    return release, rows


def write(folder: Path) -> None:
    rows = sorted({k for report in reports(folder) for k in resources(report)})
    with RECORD.open("w", newline="") as file:
        file.write(f"# nvcc {compiler()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(Resources)])
        writer.writerows(map(astuple, rows))


def test_kernels_compile_without_spills_as_recorded(tmp_path: Path) -> None:
    found = reports(tmp_path)
    for (source, target), report in zip(SET, found, strict=True):
        assert problems(report) == [], f"{source} for sm_{target}"
    release, rows = recorded()
    kernels = sorted({k for report in found for k in resources(report)})
    names = [(k.target, k.kernel) for k in kernels]
    assert names == [(k.target, k.kernel) for k in rows], "run this file with --write"
    if release == compiler():
        assert kernels == rows, "if the change is meant, run this file with --write"


def storages(most: int) -> str:
    """A CUDA file that compiles if no kernel asks for more dynamic shared memory than `most`."""
    includes = ("bodies.cuh", "launch_sm80.cuh", "convolution.cuh")
    lines = [*(f'#include "{name}"' for name in includes), "using namespace rf;"]
    lines += [f'static_assert(sizeof({s}) <= {most}, "{s}");' for s in STORAGES]
    return "\n".join([*lines, "__global__ void nothing() {}", ""])


@pytest.mark.parametrize("target", SMALLER)
def test_kernels_of_ampere_fit_smaller_gpus(target: str, tmp_path: Path) -> None:
    """Products compile without spills, and all kernels find room for their tiles."""
    for source in ("generic.cu", "simt.cu"):
        assert problems(compile_source(HERE / source, tmp_path / "kernels.cubin", target)) == []
    file = tmp_path / "storages.cu"
    file.write_text(storages(MOST_SHARED))
    compile_source(file, tmp_path / "storages.cubin", target)
    file.write_text(storages(48 * 1024))
    with pytest.raises(RuntimeError, match="GenericSharedStorage"):
        compile_source(file, tmp_path / "storages.cubin", target)


GOOD = """ptxas info    : Compiling entry function '_ZN2rf11matmul_sm90IiEEvv' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""


def test_the_check_sees_what_it_must() -> None:
    assert problems(GOOD) == []
    assert problems("") != []
    assert problems(GOOD.replace("0 bytes spill stores", "8 bytes spill stores")) != []
    assert problems(GOOD + "ptxas info : (C7510) Potential Performance Loss: wgmma") != []
    assert problems(GOOD.replace("168", "200")) != []
    on_stack = GOOD.replace("0 bytes stack", "32 bytes stack")
    assert problems(on_stack) != [] and problems(on_stack, 32) == []
    assert problems(GOOD.replace("168", "200").replace("11matmul_sm90", "5other")) == []


if __name__ == "__main__" and "--write" in sys.argv:
    with TemporaryDirectory() as work:
        write(Path(work))
