"""The command line: exit codes, one line for each error, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROBLEMS = Path(__file__).resolve().parent.parent / "problems"
S0 = PROBLEMS / "s0_sum_chain.py"
SMALL = ["--set", "batch_size=512", "--set", "in_features=512", "--set", "out_features=2048"]


def refold(*arguments, env=None, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "refold.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=cwd,
        timeout=300,
    )


def one_line(done):
    lines = [line for line in done.stderr.splitlines() if line.startswith("refold: ")]
    assert lines and "Traceback" not in done.stderr
    return lines[-1]


def test_optimize_writes_a_faster_accepted_file(tmp_path):
    out = tmp_path / "fast.py"
    done = refold("optimize", S0, "-o", out, *SMALL, "--seconds", 0.5, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "ACCEPTED"
    assert report["modes"][0]["ratio"] > 1
    assert "class ModelNew(Model)" in out.read_text()
    again = refold("judge", S0, out, *SMALL, "--quick", "--no-timing", "--json")
    assert again.returncode == 0, again.stdout
    assert json.loads(again.stdout)["status"] == "ACCEPTED"


def test_an_original_that_cannot_be_captured_is_kept(tmp_path):
    reference, out = tmp_path / "ref.py", tmp_path / "fast.py"
    reference.write_text(
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x + 1 if x.sum() > 0 else x\n"
        "def get_inputs():\n    return [torch.rand(3)]\n"
    )
    done = refold("optimize", reference, "-o", out)
    assert done.returncode == 3
    assert "torch.export cannot capture" in done.stdout
    text = out.read_text()
    assert text.startswith(reference.read_text().rstrip("\n")) and "ModelNew = Model" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([PROBLEMS / "none.py", "-o", "fast.py"], "expected a readable Python file"),
        ([S0, "-o", "nowhere/fast.py"], "does not exist; create it first"),
        ([S0, "-o", "."], "is a folder; name a file"),
        ([S0, "-o", "fast.py", "--set", "batch=3"], "constants here: batch_size=1024"),
        ([S0, "-o", "fast.py", "--set", "batch_size=x"], "batch_size to be int like 1024"),
        ([S0, "-o", "fast.py", "--target", "tpu"], "unknown target 'tpu'; the targets are cpu"),
    ],
)
def test_errors_are_one_line_and_lose_nothing(tmp_path, arguments, words):
    (tmp_path / "fast.py").write_text("what was there before")
    done = refold("optimize", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert words in one_line(done)
    assert (tmp_path / "fast.py").read_text() == "what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["fast.py"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def forward(self, x):\n        return x @ x", "forward raised RuntimeError"),
        (
            "def __init__(self):\n        raise ValueError('never')",
            "to build a module, came ValueError: never",
        ),
    ],
)
def test_a_model_that_raises(tmp_path, body, words):
    reference = tmp_path / "ref.py"
    reference.write_text(
        f"import torch\nclass Model(torch.nn.Module):\n    {body}\n"
        "def get_inputs():\n    return [torch.rand(2, 3)]\n"
    )
    done = refold("optimize", reference, "-o", tmp_path / "fast.py")
    assert done.returncode == 1
    assert words in one_line(done)


def test_no_compiler(tmp_path):
    env = dict(os.environ, CXX="no-such-compiler")
    done = refold("optimize", S0, "-o", tmp_path / "fast.py", env=env)
    assert done.returncode == 1
    assert "no C++ compiler: no-such-compiler is not on PATH" in one_line(done)


def test_usage_errors():
    assert refold("optimize", S0).returncode == 2
    assert refold("no-such-command").returncode == 2
    assert refold("judge", S0, S0, "--only", "no-such-test").returncode == 2
    assert refold("judge", PROBLEMS / "none.py", S0).returncode == 2


def test_interrupted_in_the_middle(tmp_path):
    out = tmp_path / "fast.py"
    out.write_text("what was there before")
    process = subprocess.Popen(
        [sys.executable, "-m", "refold.cli", "optimize", str(S0), "-o", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert "loading" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; nothing was written" in errors and "Traceback" not in errors
    assert out.read_text() == "what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["fast.py"]


def test_explain():
    done = refold("explain", PROBLEMS / "s1_avgpool_gelu_max.py", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["mode"] == "both"
    assert row["steps"] and all(s["why"] for s in row["steps"])
    assert row["floor_s"] <= row["predicted_s"] <= row["predicted_before_s"]
    assert refold("explain", S0, *SMALL, "--graph").returncode == 0
