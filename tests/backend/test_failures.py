"""Where our part fails, Inductor compiles the graph, the user is told once, a script shows it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import refold
from refold.backend import choose as backend
from refold.backend import graphs
from refold.backend.options import OPTIONS, BackendOptions
from refold.backend.report import collected

from .steps import all_ours, compiled

ROOT = Path(__file__).resolve().parents[2]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def test_an_error_of_ours_is_told_once_and_left_as_a_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **kwargs: object) -> str:
        raise ZeroDivisionError("seeded")

    monkeypatch.setenv("REFOLD_REPRO", str(tmp_path))
    monkeypatch.setattr(backend, "_told", set())
    model, x = small(), torch.randn(6, 8)
    with all_ours(), collected() as found, caplog.at_level(logging.WARNING, "refold"):
        monkeypatch.setattr(graphs, "emit_function", broken)
        fast = compiled(model)
        torch.testing.assert_close(fast(x), model(x))
        fast(x).sum().backward()
    assert [g.by for g in found] == ["inductor", "inductor"]
    assert all("ZeroDivisionError: seeded" in g.reason for g in found)
    (told,) = (r.getMessage() for r in caplog.records)
    assert "ours failed (ZeroDivisionError: seeded)" in told and str(tmp_path) in told
    scripts = sorted(tmp_path.iterdir())
    assert len(scripts) == 2  # the forward, and the backward
    # without the fault the script says that all is well; each of its lines can be run
    for script in scripts:
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "computes the same" in done.stdout
        assert "ZeroDivisionError: seeded" in script.read_text()


def test_kernels_that_do_not_compile_are_inductors(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small(), torch.randn(6, 8)
    kept = graphs.emit_function

    def without_compiler(*args: object) -> str:
        return kept(*args).replace("_refold_build()\n", '(None, "there is no compiler")\n')

    monkeypatch.setattr(graphs, "emit_function", without_compiler)
    with all_ours(), collected() as found, torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert [(g.by, g.reason) for g in found] == [("inductor", "there is no compiler")]


def test_another_target_than_the_tensors_is_inductors() -> None:
    model, x = small(), torch.randn(6, 8)
    with all_ours(), collected() as found, torch.no_grad():
        run = compiled(model, options={"target": "cuda:sm_90"})
        torch.testing.assert_close(run(x), model(x))
    assert found[0].reason == "its tensors are on cpu, the target is cuda:sm_90"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fast": 1}, f"unknown option 'fast'; the options are {', '.join(OPTIONS)}"),
        ({"measure": 1}, "expected the option measure to be True or False, came 1"),
        ({"float32": "bf16"}, 'expected float32="ieee" or "tf32", came \'bf16\''),
        ({"target": "tpu"}, "unknown target 'tpu'; the targets are cpu"),
    ],
)
def test_wrong_options_are_refused_in_a_line(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError) as raised:
        BackendOptions.of(given)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_explain_tells_of_each_graph() -> None:
    model, x = small(), torch.randn(6, 8)
    with all_ours():
        told = refold.explain(model, x)
    assert [g.kind for g in told.graphs] == ["forward", "backward"]
    assert all(p.grad is None for p in model.parameters())
    assert str(told).startswith("share of FLOPs by refold: forward")


def test_a_measured_graph_is_inductors_where_ours_is_not_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timing decides, on arguments of its own, and draws none of the user's random numbers."""
    model, x = small(), torch.randn(6, 8)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for faster, by in ((False, "inductor"), (True, "refold")):
        torch._dynamo.reset()
        monkeypatch.setattr(backend, "is_faster", lambda timing, faster=faster: faster)
        with all_ours(), collected() as found, torch.no_grad():
            run = compiled(model, options={"measure": True})
            torch.testing.assert_close(run(x), model(x))
        assert [g.by for g in found] == [by]
        assert found[0].ratio is not None and "times as fast as Inductor's" in found[0].reason
    assert torch.equal(torch.get_rng_state(), state)


def test_the_backend_is_known_by_its_name(tmp_path: Path) -> None:
    """What pip writes of pyproject.toml is all that PyTorch needs."""
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition("[project.entry-points.torch_dynamo_backends]\n")[2].partition("[")[0]
    points = dict(re.findall(r'(?m)^(\w+) = "(.*)"$', section))
    assert "refold" in points
    info = tmp_path / "refold_named-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: refold-named\nVersion: 0.1\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines, ""]))
    text = """
import torch
fast = torch.compile(torch.nn.Linear(4, 4), backend="refold", options={"nothing": 1})
try:
    fast(torch.randn(2, 4))
except Exception as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"},
        check=True,
    )
    assert "unknown option 'nothing'; the options are target, float32" in done.stdout
