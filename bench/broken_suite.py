"""A suite that is killed at random moments and resumed: has it the rows of an undisturbed run?

    python bench/broken_suite.py [--kills 10] [--folder OUT]

Twelve small references, whole and broken off, on the CPU. Prints each fact that differs; the exit
code is 0 where none does. What was timed may differ, and is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from refold.suite.rows import outcome, plain

# name: what __init__ makes, what forward returns, the shape of its input
REFERENCES = {
    "chain_of_sums": ("self.a = nn.Linear(64, 48)", "self.a(x).sum(1, keepdim=True)", "256, 64"),
    "pooled_rows": (
        "self.a = nn.Linear(128, 128); self.b = nn.AvgPool1d(8)",
        "self.b(self.a(x)[:, None])[:, 0]",
        "128, 128",
    ),
    "perceptron": (
        "self.a = nn.Linear(96, 192); self.b = nn.Linear(192, 10)",
        "self.b(torch.relu(self.a(x)))",
        "64, 96",
    ),
    "batch_norm": (
        "self.a = nn.Linear(64, 64); self.b = nn.BatchNorm1d(64)",
        "self.b(self.a(x)) * 2",
        "128, 64",
    ),
    "softmax": ("self.a = nn.Linear(64, 96)", "torch.softmax(self.a(x) * 0.5, 1)", "128, 64"),
    "layer_norm": (
        "self.a = nn.LayerNorm(256)",
        "torch.nn.functional.gelu(self.a(x)) + x",
        "256, 256",
    ),
    "convolution": (
        "self.a = nn.Conv2d(8, 16, 3); self.b = nn.BatchNorm2d(16)",
        "torch.relu(self.b(self.a(x)))",
        "4, 8, 24, 24",
    ),
    "image_means": ("self.a = nn.Conv2d(4, 8, 3)", "self.a(x).mean((2, 3))", "4, 4, 32, 32"),
    "constant": ("self.a = nn.Linear(32, 1)", "torch.softmax(self.a(x), 1)", "64, 32"),
    "recurrent": ("self.a = nn.GRU(16, 16, batch_first=True)", "self.a(x)[0]", "4, 6, 16"),
    "pointwise": ("pass", "torch.tanh(x) * torch.sigmoid(x) + x", "512, 300"),
    "no_reference": ("raise ValueError('no')", "x", "2, 2"),
}
FILE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {make}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where runs are kept (default: nowhere)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as none:
        folder = args.folder or Path(none)
        tasks = folder / "tasks"
        tasks.mkdir(parents=True, exist_ok=True)
        for name, (make, forward, shape) in REFERENCES.items():
            (tasks / f"{name}.py").write_text(FILE.format(make=make, forward=forward, shape=shape))
        took = -time.monotonic()
        started(tasks, folder / "whole").wait()
        took += time.monotonic()
        kills = broken(tasks, folder / "broken", args.kills, took, random.Random(args.seed))
        whole, again = (rows(folder / name) for name in ("whole", "broken"))
    print(f"{len(whole)} rows in {took:.0f} s; killed {kills} times: {len(again)} rows")
    return report(whole, again)


def started(tasks: Path, output: Path) -> subprocess.Popen[bytes]:
    """A suite of these tasks that goes on in a folder."""
    output.mkdir(exist_ok=True)
    given = ["--seconds", "0.2", "--no-compile", "--limit", "300"]
    with (output / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "refold", "suite", str(tasks), "-o", str(output), *given],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )


def broken(tasks: Path, output: Path, kills: int, whole: float, draw: random.Random) -> int:
    """Kill a suite at random moments of its work and resume it, then let it end; how often it was
    killed. whole: seconds of a run that nobody disturbs."""
    killed = 0
    for _ in range(kills):
        running = started(tasks, output)
        try:
            running.wait(draw.uniform(0.0, 1.6 / kills) * whole)
            break
        except subprocess.TimeoutExpired:
            killed += 1
            running.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
            running.wait()
    started(tasks, output).wait()
    return killed


def rows(output: Path) -> dict[str, dict[str, Any]]:
    """The rows by their tasks; each task has one."""
    found = [json.loads(line) for line in (output / "rows.jsonl").read_text().splitlines()]
    named = {row["task"]: row for row in found}
    assert len(named) == len(found), "a task has two rows"
    return named


def report(whole: dict[str, dict[str, Any]], again: dict[str, dict[str, Any]]) -> int:
    """Print what differs; 1 where a fact does."""
    different = 0
    for name in REFERENCES:
        a, b = (plain(side.get(name, {})) for side in (whole, again))
        differ = [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
        different += bool(differ)
        for key in differ:
            print(f"{name}: {key}: {a.get(key)!r}\n    broken off: {b.get(key)!r}")
    timed = sum(outcome(whole[n]) != outcome(again[n]) for n in whole.keys() & again.keys())
    print(
        f"{different} of {len(REFERENCES)} rows differ in a fact; {timed} in which side was faster"
    )
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
