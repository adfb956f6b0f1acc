"""CUDA where there is no nvcc: NVRTC compiles kernels, a C++ compiler the host's part.

Nothing here needs a GPU: a driver and CUDA's runtime that note what they are asked for stand in
for the real ones. tests/gpu/test_nvrtc.py runs the same on one.
"""

from __future__ import annotations

import ast
import ctypes
import glob
import importlib.util
import json
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from refold.codegen.headers import header, names
from refold.emit.cuda import nvcc
from refold.emit.source import source_of
from refold.report import doctor
from refold.runtime import nvcc as other
from refold.runtime import nvrtc
from test_families import Together, choice_of, claimed_on, inputs_of
from test_models import result_of, written

FAKE = Path(__file__).parent / "kernels" / "fake_cuda.cpp"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """NVRTC as a file finds it where there is no nvcc: of `pip install -e .[dev]`."""
    monkeypatch.setattr(nvrtc, "_refold_other_nvcc", lambda: None)
    parts = nvrtc._refold_nvrtc()
    assert parts is not None, "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"
    return parts


def given(text: str) -> tuple[str, list[str]]:
    """The CUDA source of an emitted file, and nvcc's flags."""
    source, flags = source_of(text), re.search(r"_REFOLD_FLAGS = (\[[^\]]*\])", text)
    assert source is not None and flags is not None
    return source.text, ast.literal_eval(flags[1])


@dataclass(frozen=True)
class Used:
    """What a thread of a kernel uses; frame: bytes of its stack, where registers are spilled to."""

    registers: int
    frame: int


def used(cubin: bytes) -> dict[str, Used]:
    """The kernels in machine code: notes of (format, what, bytes) in an ELF file's .nv.info."""
    at, size, count, texts = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + i * size) for i in range(count)]

    def named(table: int, offset: int) -> str:
        begin = sections[table][4] + offset
        return cubin[begin : cubin.index(b"\0", begin)].decode()

    (symbols,) = (s for s in sections if s[1] == 2)
    (notes,) = (s for s in sections if named(texts, s[0]) == ".nv.info")
    found: dict[int, dict[str, int]] = {0x2F: {}, 0x11: {}}  # registers, frame
    i, end = notes[4], notes[4] + notes[5]
    while i < end:
        form, what, length = struct.unpack_from("<BBH", cubin, i)
        if form == 4 and what in found:
            symbol, value = struct.unpack_from("<II", cubin, i + 4)
            (name,) = struct.unpack_from("<I", cubin, symbols[4] + 24 * symbol)
            found[what][named(symbols[6], name)] = value
        i += 4 + length * (form == 4)
    return {name: Used(n, found[0x11][name]) for name, n in found[0x2F].items()}


# --- the host's part ----------------------------------------------------------------------------
DECLARED = {
    "RF_FN int f(int x) { return x; }": "RF_FN int f(int x) ;",
    'template <class T> __global__ void k(T x) {\n  if (x) { f("}"); }  // }\n}\nint a;': (
        "template <class T> __global__ void k(T x) ;\nint a;"
    ),
    "struct A { int x, y; RF_FN A(int x) : x(x), y{x} { g(); } int z; };": (
        "struct A { int x, y; RF_FN A(int x) ; int z; };"
    ),
    "RF_FN A() : x{B{1}} {}": "RF_FN A() ;",
    "static constexpr RF_FN int c() { return 1; }": "static constexpr RF_FN int c() { return 1; }",
    "#define RF_FN __device__\nRF_FN void g();": "#define RF_FN __device__\nRF_FN void g();",
    "#define M(n) RF_FN R n(R x) { return ::n(x); }": "#define M(n) RF_FN R n(R x) ;",
    "RF_FN auto l(const B& b, int) -> decltype(b.l) { return b.l; }": (
        "RF_FN auto l(const B& b, int) -> decltype(b.l) ;"
    ),
    "// as RF_FN says {\nint b = 1;": "// as RF_FN says {\nint b = 1;",
    "int host() { return rf::f(1); }": "int host() { return rf::f(1); }",
}


@pytest.mark.parametrize("text", DECLARED)
def test_what_runs_on_a_gpu_is_declared_alone(text: str) -> None:
    assert nvrtc._refold_declared(text) == DECLARED[text]


def test_headers_keep_their_shape() -> None:
    """No instruction of a GPU is left to the host's compiler in any header."""
    kept = []
    for name in names():
        if name.startswith("cuda/"):
            text = re.sub(r"//.*", "", nvrtc._refold_declared(header(name)))
            assert text.count("{") == text.count("}"), name
            kept += [name] * bool(re.search(r"\basm\b\s*(volatile)?\(|\bthreadIdx\b", text))
    assert kept == []
    with pytest.raises(RuntimeError, match="no end"):
        nvrtc._refold_declared("RF_FN int f() { return 1;")


def test_names_are_spelt_as_c_plus_plus_has_them() -> None:
    mangled = "_ZN2rf4kernILb1ELi3ENS_4BodyEEEvT1_PFvlE"
    assert nvrtc._refold_spelt(mangled) == "rf::kern<true, 3, rf::Body>"


# --- compiled, loaded and called ----------------------------------------------------------------
CALL = """
import ctypes, json, sys
driver = ctypes.CDLL(sys.argv[2])  # has the name of the driver's library
from refold.runtime.built import _refold_loaded
import torch
kernels = _refold_loaded("kernels", sys.argv[1])
x, y = torch.randn(4, 32), torch.empty(4, 32)
driver.set_device(int(sys.argv[3]))
try:
    kernels.pointwise0(x, y, 1, 128, 0, 0, 0, 0)
    problem = None
except RuntimeError as error:
    problem = str(error)
driver.told.restype = ctypes.c_char_p
print(json.dumps([driver.told().decode(), problem]))
"""


class Pointwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * torch.sigmoid(x) + 1


@pytest.fixture(scope="module")
def written_out() -> str:
    text = result_of(Pointwise(), [torch.randn(4, 32)], "cuda:sm_80").text
    assert text is not None
    return text


def compiled(text: str, found: tuple[str, str, str], folder: Path) -> tuple[Path, Path, list[str]]:
    """A file's kernels, linked with a runtime that notes what it is asked for; the library, that
    of the driver, and the kernels."""
    folder.mkdir()
    driver = folder / "libcuda.so.1"
    command = ["c++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver), str(FAKE)]
    subprocess.run(command, check=True)
    source, flags = given(text)
    library = nvrtc._refold_compiled_apart(
        (*found[:2], str(driver)), "kernels", source, flags, str(folder)
    )
    kernels = nvrtc._refold_undefined((folder / "host.s").read_text())
    return Path(library), driver, kernels


def test_kernels_are_loaded_by_the_driver_and_started(
    written_out: str, found: tuple[str, str, str], tmp_path: Path
) -> None:
    library, driver, kernels = compiled(written_out, found, tmp_path / "made")
    machine = (tmp_path / "made" / "code0").read_bytes()
    assert set(used(machine)) == set(kernels) != set()

    def called(major: int) -> tuple[list[str], str | None]:
        command = [sys.executable, "-c", CALL, str(library), str(driver), str(major)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told, problem = json.loads(done.stdout)
        return told.split("\n"), problem

    for major, code in ((8, "machine code"), (9, "PTX")):
        (loaded, got, started, *_), problem = called(major)
        assert (loaded, problem) == (f"load {code}", None)
        name = got.removeprefix("find ")
        assert name in kernels and started.startswith(f"start {name} ")


# --- every family -------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_every_family_is_compiled_as_by_nvcc(
    target: str, found: tuple[str, str, str], tmp_path: Path
) -> None:
    """The same kernels. Registers may differ by some; of the same release of CUDA no stack does."""
    torch.manual_seed(0)
    module = Together([s for _, s in claimed_on(target)]).eval()
    inputs = inputs_of("as captured", torch.float32, target)
    _, result = written(module, inputs, target, convolutions=choice_of("ieee", target))
    assert result.text is not None
    source, flags = given(result.text)
    library = nvrtc._refold_compiled_apart(found, "kernels", source, flags, str(tmp_path))
    ours = used((tmp_path / "code0").read_bytes())
    assert all(0 < u.registers <= 255 for u in ours.values())
    assert set(ours) == set(nvrtc._refold_undefined((tmp_path / "host.s").read_text())) != set()
    ctypes.CDLL(library)  # nothing is missing in it
    file, compiler = tmp_path / "kernels.cu", nvcc()
    file.write_text(source)
    assert compiler is not None
    own = next(f for f in flags if f.startswith("-gencode") and "code=sm_" in f)
    command = [compiler, "-std=c++17", own, "-cubin", "-DTORCH_EXTENSION_NAME=kernels"]
    python = nvrtc.sysconfig.get_path("include")
    subprocess.run([*command, f"-I{python}", "-o", f"{file}.bin", str(file)], check=True)
    theirs = used(Path(f"{file}.bin").read_bytes())
    assert set(ours) == set(theirs)
    (builtins,) = glob.glob(str(Path(found[0]).parent / "libnvrtc-builtins.so.*.*"))
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    if f"release {builtins.rpartition('.so.')[2]}," in said:
        assert {n: u.frame for n, u in ours.items()} == {n: u.frame for n, u in theirs.items()}


# --- what is at hand ----------------------------------------------------------------------------
def test_it_is_looked_for_where_nvcc_is_not(
    found: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(Path(p).exists() for p in found)
    monkeypatch.setattr(doctor, "nvcc", lambda: None)
    (check,) = (c for c in doctor.checks() if c.name == "nvcc")
    assert check.said.endswith(found[0]) and not check.cure
    monkeypatch.setattr(nvrtc, "_refold_other_nvcc", lambda: "/usr/bin/nvcc")
    assert nvrtc._refold_nvrtc() is None
    monkeypatch.setattr(nvrtc, "_refold_other_nvcc", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert nvrtc._refold_nvrtc() is None and other._refold_pip_nvcc() is None


def test_what_does_not_compile_is_told(
    written_out: str, found: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, flags = given(written_out)
    wrong = source.replace("threadIdx", "no_such_index")
    with pytest.raises(RuntimeError, match="no_such_index"):
        nvrtc._refold_compiled_apart(found, "kernels", wrong, flags, str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(RuntimeError, match="no no-such-compiler"):
        nvrtc._refold_compiled_apart(found, "kernels", source, flags, str(tmp_path))
