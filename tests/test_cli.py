"""The command line: exit codes, one line for each error, and nothing lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from torch import nn

from refold import cli
from refold.judge.verdict.verdict import Status, TestReport
from refold.report import commands, times

PROBLEMS = Path(__file__).resolve().parent.parent / "problems"
S0 = PROBLEMS / "s0_sum_chain.py"
SMALL = ["--set", "batch_size=128", "--set", "in_features=256", "--set", "out_features=512"]


def refold(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "refold", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,  # ends what hangs; nothing here is about speed
    )


@pytest.mark.parametrize("more", [(), ("--no-compile",)], ids=["torch.compile", "eager"])
def test_optimize_writes_a_faster_accepted_file(tmp_path, more):
    out = tmp_path / "fast.py"
    done = refold("optimize", S0, "-o", out, *SMALL, *more, "--seconds", 0.5, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "ACCEPTED"
    assert report["modes"][0]["ratio"] > 1
    assert report["judged"] == "quick"
    text = out.read_text()
    assert "class ModelNew(Model)" in text
    assert "# The judge's quick verdict on this file: ACCEPTED, no disagreement found" in text
    if more:
        return  # of `make test-all` alone:
    # the file with its stamp is judged as it was without; all quick tests have just run
    one = ("--only", "contract", "--only", "numerics")
    again = refold("judge", S0, out, *SMALL, *one, "--quick", "--no-timing", "--json")
    assert again.returncode == 0, again.stdout
    assert json.loads(again.stdout)["status"] == "ACCEPTED"


def test_what_lies_beside_a_reference_lies_beside_the_file(tmp_path):
    """A module that is imported, and a file that is found by the file's own path."""
    (tmp_path / "beside_layers.py").write_text("def same(x):\n    return x\n")
    (tmp_path / "gain.txt").write_text("2.0")
    head = (
        "import os\nfrom beside_layers import same\n"
        'GAIN = float(open(os.path.join(os.path.dirname(__file__), "gain.txt")).read())\n'
    )
    reference, out = tmp_path / "ref.py", tmp_path / "fast.py"
    reference.write_text(head + S0.read_text())
    given = ("--no-compile", "--no-tune", "--seconds", 0.5, "--json")
    done = refold("optimize", reference, "-o", out, *SMALL, *given)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["verdict"] == "ACCEPTED"
    names = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert names == {"beside_layers.py", "gain.txt", "ref.py", "fast.py"}


STEPS = ("loading the reference", "capturing and rewriting")


def said(capsys, *arguments):
    """Exit code and the one line on standard error beside the steps, run in this process."""
    try:
        code = cli.main(list(map(str, arguments)))
    except SystemExit as error:
        code = error.code
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if line.removeprefix("refold: ") not in STEPS]
    assert len(lines) == 1 and lines[0].startswith("refold"), lines
    return code, lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([PROBLEMS / "none.py", "-o", "fast.py"], "expected a readable Python file"),
        ([S0, "-o", "nowhere/fast.py"], "does not exist; create it first"),
        ([S0, "-o", "."], "is a folder; name a file"),
        ([S0, "-o", "/dev/null"], "is no ordinary file; name another"),
        ([S0, "-o", S0], "is the reference itself; name another file"),
        ([S0, "-o", "/proc/fast.py"], "is not writable"),
        ([S0, "-o", "fast.py", "--set", "batch=3"], "constants here: batch_size=1024"),
        ([S0, "-o", "fast.py", "--set", "batch_size=x"], "batch_size to be int like 1024"),
        ([S0, "-o", "fast.py", "--set", "batch_size"], "expected --set NAME=VALUE"),
        ([S0, "-o", "fast.py", "--target", "tpu"], "unknown target 'tpu'; the targets are cpu"),
        ([S0, "-o", "fast.py", "--seconds", "-1"], "expected a positive number, came '-1'"),
        ([S0, "-o", "fast.py", "--no-such"], "unrecognized arguments: --no-such"),
        ([S0], "the following arguments are required: -o"),
    ],
)
def test_wrong_usage_is_one_line_and_loses_nothing(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    before = S0.read_text()
    (tmp_path / "fast.py").write_text("what was there before")
    code, line = said(capsys, "optimize", *arguments)
    assert code == 2 and words in line
    assert (tmp_path / "fast.py").read_text() == "what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["fast.py"]
    assert S0.read_text() == before


MODEL = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x
def get_inputs():
    return [torch.rand(3, 3)]
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(self, x)", "(self x)", "ref.py:3: expected Python source, came SyntaxError"),
        ("import torch", "import no_such_module", "expected the file to import"),
        ("import torch", "import torch, sys; sys.exit(3)", "came SystemExit: 3"),
        ("class Model", "class Other", "expected a class named Model, came classes: Other"),
        ("(torch.nn.Module)", "", "to be a subclass of torch.nn.Module"),
        ("forward(self, x)", "__init__(self)", "to build a module, came NameError"),
        (
            "def forward(self, x)",
            "def __init__(self, x): exit(1)\n    def forward(self, x)",
            "came",
        ),
        ("get_inputs", "inputs", "expected a function get_inputs(), came none"),
        ("[torch.rand(3, 3)]", "torch.rand(3, 3)", "came Tensor; return [x] instead of x"),
        ("[torch.rand(3, 3)]", "{'x': torch.ones(3)}", "came dict; list its values in the order"),
        ("[torch.rand(3, 3)]", "1 / 0", "came ZeroDivisionError"),
        ("[torch.rand(3, 3)]", "exit(1)", "came SystemExit: 1"),
        ("rand(3, 3)", "rand(2, 3)", "forward raised RuntimeError"),
        ("[torch.rand(3, 3)]", "[None]", "forward raised TypeError"),
        ("[torch.rand(3, 3)]", "[]", "forward raised TypeError"),
    ],
)
def test_a_wrong_file_is_one_line_and_loses_nothing(tmp_path, capsys, old, new, words):
    reference, out = tmp_path / "ref.py", tmp_path / "fast.py"
    reference.write_text(MODEL.replace(old, new))
    out.write_text("what was there before")
    for command in (["optimize", reference, "-o", out], ["explain", reference]):
        code, line = said(capsys, *command)
        assert code == 1 and words in line
    assert out.read_text() == "what was there before"
    assert not list(tmp_path.glob(".*"))


SENT = """import torch
class Size:
    n = 3
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
    def forward(self, x):
        return x @ x
def get_inputs():
    return [torch.rand(3, 3)]
def get_init_inputs():
    return [Size()]
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", "expected get_init_inputs() to give tensors and plain values, came"),
        ("[Size()]", "[3]", ""),
        ("x @ x", "Size()", "expected forward to return tensors and plain values, came"),
    ],
)
def test_what_the_judge_cannot_be_sent_is_said_at_once(
    tmp_path, monkeypatch, capsys, old, new, words
):
    """It was said when everything was captured, compiled and timed."""
    reference = tmp_path / "ref.py"
    text = SENT.replace(old, new) if old else SENT
    reference.write_text(text if not old else text.replace("[Size()]", "[3]"))
    began = []
    monkeypatch.setattr(commands.pipeline, "written", lambda *a: began.append(1) or 1 / 0)
    code, line = said(capsys, "optimize", reference, "-o", tmp_path / "fast.py")
    assert code == 1 and words in line and bool(began) == (not words)


def test_a_link_is_followed(tmp_path, capsys):
    reference, out, link = (tmp_path / name for name in ("ref.py", "fast.py", "link.py"))
    reference.write_text(MODEL.replace("x @ x", "x + 1 if x.sum() > 0 else x"))
    link.symlink_to(out)
    assert cli.main(["optimize", str(reference), "-o", str(link)]) == 3
    assert link.is_symlink() and "ModelNew = Model" in out.read_text()


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return x + 1 if x.sum() > 0 else x", "forward needs a tensor's values as Python"),
        ("return x * x.sum().item()", "forward needs a tensor's values as Python numbers"),
        ("return x[x > 0] * 2", "a size depends on a tensor's values"),
        ("return x.mul_(2)", "forward writes to its own inputs"),
        ("return x + torch.rand(3)", "forward draws random numbers (aten.rand"),
        ("return (x.double() * 2).float()", "nothing to rewrite or to fuse"),
        ("return {x.sum()}", "forward returns a set"),
    ],
)
def test_why_the_original_is_kept(tmp_path, capsys, forward, words):
    reference, out = tmp_path / "ref.py", tmp_path / "fast.py"
    reference.write_text(MODEL.replace("return x @ x", forward))
    assert cli.main(["optimize", str(reference), "-o", str(out), "--json"]) == 3
    assert words in json.loads(capsys.readouterr().out)["reason"]
    assert words in out.read_text()


def test_no_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    code, line = said(capsys, "optimize", S0, "-o", tmp_path / "fast.py")
    assert code == 1 and "no C++ compiler: no-such-compiler -O2 is not on PATH" in line
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("nvcc", "_refold_nvrtc"):
        monkeypatch.setattr(f"refold.report.commands.{name}", lambda: None)
    code, line = said(capsys, "optimize", S0, "-o", tmp_path / "fast.py", "--target", "cuda:sm_80")
    assert code == 1 and "neither nvcc" in line and "nvidia-cuda-nvcc" in line
    assert not (tmp_path / "fast.py").exists()


def test_an_unexpected_error_is_one_line_too(tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise AssertionError("two\nlines")

    monkeypatch.setattr("refold.pipeline.written", fail)
    code, line = said(capsys, "optimize", S0, "-o", tmp_path / "fast.py", *SMALL)
    assert code == 1 and "unexpected AssertionError: two lines (--debug shows" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-command"], "invalid choice: 'no-such-command'"),
        ([], "required: COMMAND"),
        (["judge", S0, S0, "--only", "no-such-test"], "no-such-test"),
        (["judge", PROBLEMS / "none.py", S0], "expected a readable Python file"),
        (["judge", S0, PROBLEMS / "none.py"], "expected a candidate file, came none"),
        (["judge", S0], "required: CAND.py"),
        (["judge", S0, S0, "--set", "batch=3"], "constants here: batch_size=1024"),
        (["judge", S0, S0, "--html", "/nowhere/page.html"], "/nowhere"),
        (["explain", PROBLEMS / "none.py"], "expected a readable Python file"),
    ],
)
def test_usage_errors_of_the_others(capsys, arguments, words):
    code, line = said(capsys, *arguments)
    assert code == 2 and words in line


def test_an_interrupt_within_an_exec_of_text_ends_as_others_do(tmp_path):
    """As dataclasses make. CPython ends a program of `python -m` by the signal then."""
    reference = tmp_path / "ref.py"
    text = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    reference.write_text(f"exec({text!r})\n")
    # not `optimize`, which starts the judge's process first
    command = [sys.executable, "-m", "refold", "explain", reference]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        # what was started in a shell's background would ignore interrupts from the start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == 130 and done.stderr.endswith("refold: interrupted\n")


def test_interrupted_in_the_middle(tmp_path):
    out = tmp_path / "fast.py"
    out.write_text("what was there before")
    process = subprocess.Popen(
        [sys.executable, "-m", "refold", "optimize", str(S0), "-o", str(out), *SMALL],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # what was started in a shell's background would ignore interrupts from the start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    assert "loading" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=1800)
    assert process.returncode == 130
    assert "interrupted; nothing was written" in errors and "Traceback" not in errors
    assert out.read_text() == "what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["fast.py"]


def test_the_header_says_which_verdict_a_file_has():
    left = TestReport("leaks", "", "skipped", 0.0, 0, "left out: budget (1100 calls)")
    tests = (TestReport("numerics", "", "passed", 1.0, 9), left)
    verdict = types.SimpleNamespace(
        status=Status.ACCEPTED, accepted=True, tests=tests, assumptions=("inference only",)
    )
    text = commands._stamped("# Made by refold.\n#\nrest\n", commands._seen_by(verdict, False))
    told = " ".join(line.removeprefix("# ") for line in text.split("\n#\n")[1].splitlines())
    assert told == (
        "The judge's quick verdict on this file: ACCEPTED, no disagreement found by 1 tests;"
        " left out: leaks (refold judge --full runs them); assumed: inference only."
    )
    assert text.startswith("# Made by refold.\n#\n") and text.endswith("\n#\nrest\n")
    verdict.tests = tests[:1]
    assert "full verdict on this file: ACCEPTED" in commands._seen_by(verdict, True)


def test_explain(capsys):
    asked = ["explain", PROBLEMS / "s1_avgpool_gelu_max.py", *SMALL, "--json"]
    assert cli.main(list(map(str, asked))) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["mode"] == "both"
    assert row["steps"] and all(s["why"] for s in row["steps"])
    assert row["floor_s"] <= row["predicted_s"] <= row["predicted_before_s"]
    assert cli.main(["explain", str(S0), *map(str, SMALL), "--graph", "--plan"]) == 0
    told = capsys.readouterr().out
    assert "lay out argument x" in told and "in new memory" in told


def test_memory_that_kernels_work_in_is_counted(monkeypatch):
    made = types.ModuleType("refold_made_with_workspaces")
    made._refold_workspaces = {(0, 7): (1 << 40, 1 << 41, 4096, 16, ()), (0, 8): (0, 0, 100, 0, ())}
    monkeypatch.setitem(sys.modules, made.__name__, made)
    fast = type("ModelNew", (nn.Module,), {"__module__": made.__name__})()
    assert times._working_bytes(fast) == 4096 + 16 + 100
    assert times._working_bytes(nn.Identity()) == 0
