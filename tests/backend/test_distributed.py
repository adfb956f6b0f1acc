"""DistributedDataParallel and fully_shard, around the compiled module and inside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .processes import CASES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(case: str, tmp_path: Path) -> None:
    """Accumulation, no_sync, hooks, clipping, and a checkpoint that another module reads."""
    script = str(Path(__file__).with_name("processes.py"))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(tmp_path), case],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    try:
        for process in running:
            said, wrong = process.communicate(timeout=900)
            assert process.returncode == 0, wrong[-3000:]
            assert said.strip().endswith("the same")
    finally:
        for process in running:
            process.kill()
