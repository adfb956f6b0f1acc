"""What refold says while it works, and where CUDA's compiler is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import refold
from refold.emit import cuda
from refold.runtime import nvcc

RUN = """
import torch, refold
model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softmax(-1)), torch.randn(4, 8)
said = []
fast = refold.optimize(model, x, measure=False, progress=said.append)
with torch.no_grad():
    fast(x)
    fast(x.double()) if False else None
fast(x)
assert said[0] == "capturing and rewriting" and "compiling the kernels" in said, said
print(fast.refold_report())
"""


def run(switches: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REFOLD_LOGS": switches, "REFOLD_CACHE": str(cache)}
    environment.pop("TORCH_EXTENSIONS_DIR", None)
    return subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
    )


def test_each_switch_prints_its_own_lines(tmp_path: Path) -> None:
    done = run("rewrites, cache,fallbacks,nonsense", tmp_path)
    lines = done.stderr.splitlines()
    assert (
        "refold: REFOLD_LOGS has no 'nonsense': there are rewrites, fallbacks, cache, all" in lines
    )
    for kind, words in (
        ("rewrites", "In every mode"),
        ("cache", "compiled in"),
        ("fallbacks", "the original forward was taken"),
    ):
        assert any(line.startswith(f"[{kind}]") and words in line for line in lines), kind
    assert "In every mode" in done.stdout
    assert "The last call took the original forward: gradients" in done.stdout


def test_without_switches_it_says_what_a_user_must_know(tmp_path: Path) -> None:
    quiet = run("", tmp_path).stderr
    assert "compiled in" not in quiet and quiet.count("the original forward was taken") == 1


def test_another_system_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ImportError, match="darwin is not supported"):
        refold.optimize  # noqa: B018
    monkeypatch.undo()
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert refold.optimize and __import__("refold").pipeline.default_target() == "cpu"


def test_without_pytorch_the_command_says_so_in_one_line() -> None:
    source = str(Path(refold.__file__).parents[1])
    lines = (
        f"import sys; sys.path.append({source!r})",
        "from refold.entry import main; exit(main())",
    )
    # -S: without the installed packages
    command = [sys.executable, "-I", "-S", "-c", "\n".join(("from sys import exit", *lines))]
    done = subprocess.run([*command, "doctor"], capture_output=True, text=True, check=False)
    said = "refold: PyTorch is missing here: pip install 'torch>=2.11'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_the_compiler_of_a_wheel_is_found_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\nexit 1\n")
    made.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os.path, "exists", lambda path: False)  # /usr/local/cuda
    monkeypatch.setattr(cuda.Path, "exists", lambda path: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert cuda.nvcc() == nvcc._refold_pip_nvcc() == str(made)
    with pytest.raises(RuntimeError):
        nvcc._refold_compiled_cuda(str(made), "kernels", "", [], str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert nvcc._refold_pip_nvcc() is None
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    made.chmod(0o644)
    assert nvcc._refold_pip_nvcc() is None
