"""DistributedDataParallel and fully_shard, around the compiled module and inside it."""

from __future__ import annotations

import csv
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


def test_the_run_on_several_gpus_by_two_processes_here(tmp_path: Path) -> None:
    """bench/several_gpus.py: losses and gradients, a checkpoint of two read by one, a module in
    threads; called again, it has nothing left to do."""
    rows = tmp_path / "rows.csv"
    command = [sys.executable, str(ROOT / "bench" / "several_gpus.py"), "--device", "cpu"]
    command += ["--only", "mlp_ddp_inside", "emitted", "--every", "--steps", "4", "--rounds", "2"]
    command += ["--limit", "1500"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    for told in ("2 parts", "0 parts"):
        done = subprocess.run(
            [*command, "--output", str(rows)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert told in done.stdout
    with rows.open(newline="") as file:
        spread, emitted = csv.DictReader(file)
    assert spread["losses"] == spread["checkpoint"] == "the same"
    assert spread["graphs"] == "2 of 2" and float(spread["error"]) < 2
    assert emitted["checked"] == "copied moved threads"
