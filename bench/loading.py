"""What a call into compiled code costs the host, by the way in which the code is loaded.

python bench/loading.py

Five tensors, three sizes, and a kernel that does nothing. Prints also to whose version a library of
each way is tied. Compiles with the system's C++ compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sysconfig
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from refold.codegen.headers import header

KERNEL = """
static volatile long sink;
static void kernel(void* a, void* b, void* c, void* d, void* e, long n, long m, long k) {
  sink = reinterpret_cast<long>(a) ^ reinterpret_cast<long>(e) ^ (n + m + k);
}
"""
MODULE = """
RF_FUNCTION(call, (void* a, void* b, void* c, void* d, void* e, long n, long m, long k),
            (kernel(a, b, c, d, e, n, m, k), size_t(0)))
"""
PLAIN = (
    'extern "C" void call(void* a, void* b, void* c, void* d, void* e, long n, long m, long k) {\n'
)
PLAIN += "  kernel(a, b, c, d, e, n, m, k);\n}\n"
PYBIND = """
#include <torch/extension.h>
static void call(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d,
                 const at::Tensor& e, long n, long m, long k) {
  kernel(a.data_ptr(), b.data_ptr(), c.data_ptr(), d.data_ptr(), e.data_ptr(), n, m, k);
}
PYBIND11_MODULE(NAME, m) { m.def("call", &call); }
"""
STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
static void call(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, int64_t n, int64_t m,
                 int64_t k) {
  kernel(a.data_ptr(), b.data_ptr(), c.data_ptr(), d.data_ptr(), e.data_ptr(), n, m, k);
}
STABLE_TORCH_LIBRARY(NAME, m) {
  m.def("call(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, int n, int m, int k) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(NAME, CPU, m) { m.impl("call", TORCH_BOX(&call)); }
"""


def compiled(folder: Path, name: str, text: str, torch_headers: bool = False) -> Path:
    source, made = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(re.sub(r"\bNAME\b", name, text))
    paths = [sysconfig.get_path("include"), *(cpp_extension.include_paths() * torch_headers)]
    lib = Path(torch.__file__).parent / "lib"
    libraries = [f"-l{n}" for n in ("torch_python", "torch", "torch_cpu", "c10")]
    command = [os.environ.get("CXX", "c++"), "-O3", "-std=c++20", "-shared", "-fPIC", str(source)]
    command += [f"-DTORCH_EXTENSION_NAME={name}", *(f"-I{p}" for p in paths), "-o", str(made)]
    subprocess.run([*command, f"-L{lib}", *libraries], check=True)
    return made


def imported(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call: Callable[..., Any] = module.call
    return call


def ways(folder: Path) -> dict[str, tuple[str, Callable[..., Any]]]:
    """For each way what it is tied to, and the call."""
    module = KERNEL + MODULE
    today = compiled(folder, "today", header("call.h") + module)
    limited = "#define Py_LIMITED_API 0x030A0000\n" + header("call.h") + module
    plain = ctypes.CDLL(str(compiled(folder, "plain", KERNEL + PLAIN))).call
    plain.argtypes, plain.restype = [*[ctypes.c_void_p] * 5, *[ctypes.c_long] * 3], None

    def by_address(*args: Any) -> None:
        plain(*(t.data_ptr() for t in args[:5]), *args[5:])

    ops: Any = torch.ops
    ops.load_library(str(compiled(folder, "stable", KERNEL + STABLE, True)))
    return {
        "a C module (today's)": ("Python", imported(today)),
        "a C module, limited API": ("-", imported(compiled(folder, "limited", limited))),
        "ctypes, addresses from data_ptr": ("-", by_address),
        "pybind11 and torch/extension.h": (
            "Python, PyTorch",
            imported(compiled(folder, "pybind", KERNEL + PYBIND, True)),
        ),
        "torch.ops, the stable ABI": ("-", ops.stable.call.default),
    }


def main() -> None:
    tensors = [torch.empty(16) for _ in range(5)]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for words, (tied, call) in ways(Path(folder)).items():
            rounds = timeit.repeat(lambda: call(*tensors, 1, 2, 3), number=5000, repeat=40)  # noqa: B023
            print(f"{words:34} {min(rounds) / 5000 * 1e6:6.2f} µs   tied to: {tied}")


if __name__ == "__main__":
    main()
