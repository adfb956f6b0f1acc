"""The emulator catches mistakes: small faulty kernels, and the real ones with a line changed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from tests.emulator.translate import FLAGS, Unknown, compile_source, link, translate

KERNELS = Path(__file__).parent / "kernels"

# a faulty kernel -> what is said of it; "" where the values that it leaves are wrong
FAULTS = {
    "unguarded": "",
    "impatient": "",
    "unfinished": "",
    "deserted": "127 threads wait for a barrier",
    "miscounted": "a barrier of",
    "unled": "(lanes 80000000 have ended|thread ends while its warp waits)",
    "divided": "meets",
    "skewed": "block 0, thread 3: .* is not aligned by 16 bytes",
    "hopeless": "threads look for ever at memory that nobody writes",
    "short_of_one": "128 threads wait for a phase",
    "crowded": "more blocks together than processors",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("faulty")
    compile_source(KERNELS / "faulty.cu", folder / "faulty.o")
    link([folder / "faulty.o"], folder / "faulty.so")
    return ctypes.CDLL(str(folder / "faulty.so"))


def run(library: ctypes.CDLL, name: str) -> tuple[str | None, bool]:
    """What a launch says, and whether its results are right."""
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    out = torch.zeros(128)
    said = function(ctypes.c_void_p(out.data_ptr()))
    return said and said.decode(), torch.equal(out, torch.arange(128.0).flip(0))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_kernel_is_caught(library: ctypes.CDLL, name: str) -> None:
    said, right = run(library, name)
    if FAULTS[name]:
        assert said is not None
        with pytest.raises(RuntimeError, match=FAULTS[name]):
            raise RuntimeError(said)
    else:
        assert said is None and not right


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_without_the_fault_is_right(library: ctypes.CDLL, name: str) -> None:
    run(library, name)  # a launch that has failed leaves nothing behind
    assert run(library, f"{name}_mended") == (None, True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('asm volatile("vote.sync.any.pred p, q, %0;" :: "r"(mask));', "vote.sync"),
        ('asm volatile("bar.sync.aligned %0;" :: "r"(number));', "bar.sync.aligned"),
        ("extern __shared__ float raw[];", "float raw"),
    ],
)
def test_what_is_not_known_is_refused(text: str, what: str) -> None:
    with pytest.raises(Unknown, match=what):
        translate(text)


def test_statements_become_calls() -> None:
    text = (
        'int f() { asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t)); asm("" : "+f"(x)::"memory"); }'
    )
    assert translate(text) == "int f() { (t = emulator::thread_x()); ((void)0); }"
    text = "__shared__ Real words[2][kRows / 32], sums[4];"
    assert translate(text).count("emulator::shared_variable<Real ") == 2
    text = 'asm volatile("bar.sync %0, %1;" ::"r"(rf::number(a, b)), "r"(n) : "memory");'
    assert translate(text) == "emulator::bar_sync(rf::number(a, b), n);"


def test_threads_leave_their_stacks_whatever_the_compiler_defines() -> None:
    """Ubuntu's g++ defines _FORTIFY_SOURCE: glibc then ends a process that changes its stack."""
    fortified = ["g++", "-D_FORTIFY_SOURCE=3", *FLAGS, "-O2", "-E", "-x", "c++", "-"]
    text = "#include <csetjmp>\nvoid leave(std::jmp_buf place) { std::longjmp(place, 1); }\n"
    made = subprocess.run(fortified, input=text, capture_output=True, text=True, check=True).stdout
    assert "longjmp_chk" not in made
