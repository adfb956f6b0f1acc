"""Kernels that two compilers read side by side: the same results as by one, and faults told."""

from __future__ import annotations

import gc
import os
import subprocess
import sysconfig
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import compiler
import refold
from captures import captured_once, drawn
from refold.codegen.cpp import beside
from refold.emit.source import source_of
from refold.runtime.library import _refold_compiled_cpp, _refold_ran
from test_models import written

Popen = subprocess.Popen


def kernel_of(family, effort, shared, name="product"):
    cpp = SimpleNamespace(effort=effort, shared=shared)
    return SimpleNamespace(group=SimpleNamespace(family=family), cpp=cpp, name=name)


@pytest.fixture(autouse=True)
def two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled as two parts stays two; see tests/compiler.py."""
    monkeypatch.setenv(compiler.PARTS, "1")


class Net(nn.Module):
    """Products with reductions of both kinds behind them, and a pass over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm, self.few = nn.Linear(40, 96), nn.BatchNorm1d(96), nn.Linear(96, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(self.norm(self.wide(x)), dim=-1)
        return y, torch.sigmoid(self.few(y)).sum(1)


def results(tmp_path, monkeypatch, processors: int):
    """Of rows that go to both halves of a product; and the commands that compiled the kernels."""
    ran = []

    class Noted(Popen):
        def __init__(self, command, *args, **named):
            ran.append(command)
            super().__init__(command, *args, **named)

    gc.collect()  # kernels of an equal text that are alive would be taken again
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path / f"{processors}"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(subprocess, "Popen", Noted)
    torch.manual_seed(0)
    model = Net().requires_grad_(False)
    fast = refold.optimize(model, torch.randn(48, 40), measure=False)
    found = []
    for training in (False, True):
        fast.train(training)
        for rows in (48, 13, 12, 2, 130):
            found += fast(torch.randn(rows, 40))
    assert refold.status(fast).fast, refold.status(fast)
    return found, [c for c in ran if "-c" in c]


def test_two_parts_give_the_bits_of_one(tmp_path, monkeypatch):
    one, whole = results(tmp_path, monkeypatch, 1)
    two, parts = results(tmp_path, monkeypatch, 2)
    assert whole and not any("RF_UNIT" in word for command in whole for word in command)
    assert {w for c in parts for w in c if "RF_UNIT" in w} == {"-DRF_UNIT=0", "-DRF_UNIT=1"}
    assert len(one) == len(two)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_that_does_not_compile_is_told(tmp_path, part):
    source = f"#if RF_UNIT == {part}\n#error no such part\n#endif\n"
    with pytest.raises(RuntimeError, match="no such part"):
        _refold_compiled_cpp("x", source, [], str(tmp_path), 2)


def test_commands_run_side_by_side_and_all_end(tmp_path):
    marks = [tmp_path / "a", tmp_path / "b"]
    # each waits for the other's mark
    wait = [
        f"touch {mine}; for i in $(seq 100); do test -e {other} && exit 0; sleep 0.1; done; exit 1"
        for mine, other in (marks, marks[::-1])
    ]
    _refold_ran([["sh", "-c", text] for text in wait])
    slow = tmp_path / "slow"
    with pytest.raises(RuntimeError, match="first"):
        _refold_ran(
            [
                ["sh", "-c", "echo first >&2; exit 3"],
                ["sh", "-c", f"sleep 0.3; touch {slow}; exit 0"],
            ]
        )
    assert slow.exists()
    with pytest.raises(OSError):
        _refold_ran([[str(tmp_path / "nothing")]])
    assert subprocess.run(["true"], check=True).returncode == 0


def test_floats_read_no_header_that_takes_longer_than_kernels(tmp_path):
    """Of PyTorch one list of settings, and of the processor's what is used of them."""
    with captured_once():
        _, result = written(*drawn("Mlp", torch.float32), "cpu")
    source = source_of(result.text)
    assert source is not None
    (tmp_path / "x.cpp").write_text(source.text)
    folders = f"{os.path.dirname(torch.__file__)}/include", sysconfig.get_path("include")
    told = ["-std=c++17", "-fopenmp", "-mavx2", "-mfma", "-DCPU_CAPABILITY_AVX2", "-M"]
    listed = subprocess.run(
        ["g++", *told, "-DTORCH_EXTENSION_NAME=x", *(f"-isystem{f}" for f in folders), "x.cpp"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [f for f in listed if "/ATen/" in f or "/c10/" in f] == [f"{folders[0]}/ATen/Config.h"]
    assert not any(f.endswith(("/immintrin.h", "/avx512fintrin.h", "/thread")) for f in listed)


def test_two_compilers_have_about_as_much_to_do():
    each = [kernel_of("matmul", 4, 22)] + [kernel_of("columns", 9, 0, f"{i}") for i in range(6)]
    aside = beside(each)
    assert 2 <= len(aside) <= 3
    assert not beside([kernel_of("rows", 4, 0, "one"), kernel_of("rows", 4, 0, "two")])
    assert beside([kernel_of("convolution", 20, 0, "one"), kernel_of("convolution", 20, 0, "two")])
