"""The compiler that tests use (compiler.py): what it precompiles, what it leaves to the loader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import compiler
from captures import captured_once, drawn
from refold.runtime.built import _refold_loaded
from refold.runtime.library import _refold_compiled_cpp
from test_models import written

MISSING = """
#include <Python.h>
void no_such_function();
static PyModuleDef missing = {PyModuleDef_HEAD_INIT, "missing", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_missing() {
  no_such_function();
  return PyModule_Create(&missing);
}
"""


@pytest.mark.parametrize(
    ("dtype", "read"), [(torch.float32, False), (torch.float16, True), (torch.float64, True)]
)
def test_pytorchs_vectors_are_precompiled_for_those_who_read_them(
    dtype: torch.dtype, read: bool
) -> None:
    with captured_once():
        _, result = written(*drawn("Mlp", dtype), "cpu")
    assert result.text is not None
    assert ("ATen/cpu/vec/vec.h" in compiler.includes(result.text)) is read


def test_what_no_library_has_is_missed_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's libraries are not read by the linker."""
    monkeypatch.setenv(compiler.OPTIMIZE, "-O0")
    made = _refold_compiled_cpp("missing", MISSING, ["-O3", "-std=c++20"], str(tmp_path))
    with pytest.raises(ImportError, match="no_such_function"):
        _refold_loaded("missing", made)


def test_inductor_takes_it_for_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.cpp_builder import _is_gcc

    for name in ("CXX", "TORCHINDUCTOR_CACHE_DIR", compiler.FOLDER):
        monkeypatch.setenv(name, "")
    compiler.install(tmp_path)
    assert _is_gcc(os.environ["CXX"])
