"""Where our part fails, Inductor compiles the graph, the user is told once, a script shows it."""

from __future__ import annotations

import builtins
import logging
import os
import re
import subprocess
import symtable
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd import graph_compile
from torch._inductor.utils import fresh_cache

import refold
from refold.backend import choose as backend
from refold.backend import graphs, kept
from refold.backend.kept import key_of
from refold.backend.options import OPTIONS, BackendOptions
from refold.backend.report import collected
from refold.emit.cuda import CudaTarget

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
    (told,) = (r.getMessage() for r in caplog.records if r.name.startswith("refold"))
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


def undefined(text: str) -> set[str]:
    """Names that a module reads and has not."""
    top = symtable.symtable(text, "emitted", "exec")
    tables, missing = [top], set()
    here = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read = (s for s in table.get_symbols() if s.is_referenced() and s.is_global())
        missing |= {s.get_name() for s in read} - here - set(dir(builtins))
    return missing


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80", "cuda:sm_90"])
def test_emitted_functions_have_all_that_they_name(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, texts = graphs.emit_function, []

    def emitted(*args: Any) -> str:
        texts.append(emit(*args))
        return texts[-1]

    monkeypatch.setattr(graphs, "emit_function", emitted)
    monkeypatch.setattr(graphs, "target_at", lambda *args: target)
    monkeypatch.setattr(CudaTarget, "device", "cpu")  # its text needs none
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
    with all_ours():
        compiled(model)(torch.randn(6, 8)).sum().backward()
    assert len(texts) == 2
    assert [undefined(text) for text in texts] == [set(), set()]
    assert undefined("def f():\n    return len(missing)\n") == {"missing"}


def test_what_is_not_kept_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11's AOTAutograd takes the attribute itself for a key."""

    def by_attribute(*made: object) -> bool:
        return all(hasattr(m, "_fx_graph_cache_key") for m in made)

    monkeypatch.setattr(graph_compile, "_should_save_cache", by_attribute, raising=False)
    monkeypatch.setattr(graphs, "emit_function", lambda *args: 1 / 0)
    monkeypatch.setattr(kept, "key_of", key_of)
    monkeypatch.setattr(backend, "_told", set())
    model, x = small(), torch.randn(6, 8)
    with fresh_cache(), all_ours(), collected() as found:
        compiled(model)(x).sum().backward()
    assert [g.by for g in found] == ["inductor", "inductor"]


def test_kernels_that_do_not_compile_are_inductors(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small(), torch.randn(6, 8)
    emit = graphs.emit_function

    def without_compiler(*args: object) -> str:
        return emit(*args).replace("_refold_build()\n", '(None, "there is no compiler")\n')

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


def test_an_error_while_a_graph_is_traced_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a mode that the graph entered: PyTorch 2.11 leaves the state of tracing to the process."""

    def traced(*args: Any, **given: Any) -> None:
        with torch._dispatch.python.enable_python_dispatcher():
            mode = torch.autograd.grad_mode._enter_inference_mode(True)
            raise RuntimeError(f"of {mode}")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", traced)
    before, module = torch._C._dispatch_tls_local_include_set(), torch.nn.Linear(4, 4)
    with pytest.raises(Exception, match="of <torch"):
        torch.compile(module, backend="refold")(torch.randn(2, 4))
    assert torch._C._dispatch_tls_local_include_set() == before
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    assert module(torch.randn(2, 4)).requires_grad
