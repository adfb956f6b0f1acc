"""nvcc makes kernels of attention with dropout without spills, and what calls them is run by
the host alone: where no GPU answers it says so and returns."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from refold.emit.attention_dropout import emit_attention_dropout
from refold.emit.cuda import CudaTarget, compile_emitted, nvcc
from refold.emit.source import source_of
from refold.families.attention.dropout import Dropout
from refold.pipeline import target_for
from tests.kernels.test_cuda_compile import resources

# a call that no GPU answers: its addresses are never read
_CALLED = """
import sys; sys.path.insert(0, sys.argv[1])
import kernels
tokens = (64, 131072, 256, 64)
try:
    sizes = 2, 512, 512, 4, 64, 0, 0, 0
    kernels.dropped(*({sides} * tokens), {beside}5, 0, {results}*sizes, {places}64, 64, 0, 0)
except RuntimeError as error:
    print("said", error)
"""


def text_of(gradient: bool, features: int = 64) -> str:
    target, _ = target_for("cuda:sm_90", "ieee")
    assert isinstance(target, CudaTarget)
    return emit_attention_dropout(Dropout(features, 0.125, True, False, 0.1, gradient), target)


@pytest.mark.parametrize("gradient", [False, True])
def test_without_spills(gradient: bool) -> None:
    said: list[str] = []
    assert compile_emitted(text_of(gradient), said) is None
    found = resources(said[0])
    assert any("draw_attention" in r.kernel for r in found)
    assert [(r.kernel, r.spilled) for r in found if r.spilled] == []


@pytest.mark.parametrize("gradient", [False, True])
def test_the_host_runs_what_calls_them(gradient: bool, tmp_path: Path) -> None:
    source = source_of(text_of(gradient))
    assert source is not None
    (tmp_path / "kernels.cu").write_text(source.text)
    flags = ast.literal_eval(re.search(r"_REFOLD_FLAGS = (\[[^\]]*\])", text_of(gradient))[1])  # type: ignore[index]
    command = [str(nvcc()), *flags, "-shared", "-cudart=static", "-Xcompiler=-fPIC"]
    command += ["-DTORCH_EXTENSION_NAME=kernels", f"-I{sysconfig.get_path('include')}"]
    command += ["-o", str(tmp_path / "kernels.so"), str(tmp_path / "kernels.cu")]
    subprocess.run(command, check=True, capture_output=True)
    facts = {"sides": 5, "beside": "64, ", "results": "64, 64, 64, ", "places": "512, "}
    if not gradient:
        facts = {"sides": 3, "beside": "", "results": "64, 64, ", "places": ""}
    call = [sys.executable, "-c", _CALLED.format(**facts), str(tmp_path)]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin"}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.startswith("said "), (done.returncode, done.stderr)
