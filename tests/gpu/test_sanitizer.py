"""compute-sanitizer around a small set of the tests: bad addresses, and races in shared memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .library import Product, Split

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
# one shape with tails on every side; each kernel family with each kind of sink
SMALL = "(257 or 16-2048) and (plain or operands or rows or columns or both) and not accurate"
SHARED = "257 and (rows or columns) and (simt or generic or tall)"


def sanitized(tool: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs Python under one of the sanitizer's tools; an error found is exit status 9."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    # each tensor an allocation of its own: bounds inside PyTorch's pools are not watched
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return subprocess.run(
        [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )


@pytest.mark.parametrize(("tool", "tests"), [("memcheck", SMALL), ("racecheck", SHARED)])
def test_nothing_is_found(tool: str, tests: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", "tests/gpu/test_matmul.py", "-k", tests)
    done = sanitized(tool, "-m", "pytest", *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_what_must_be_found_is_found() -> None:
    done = sanitized("memcheck", "-m", "tests.gpu.test_sanitizer")
    assert done.returncode != 0 and "Invalid __global__ write" in done.stdout, done.stdout


def overrun() -> None:
    """A product whose output has room for a tenth of it."""
    x, w = torch.randn(300, 64, device="cuda"), torch.randn(500, 64, device="cuda")
    Product("plain_simt", Split(x, "simt"), Split(w, "simt"), (), (x.new_empty(30, 500),))()
    torch.cuda.synchronize()


if __name__ == "__main__":
    overrun()
