"""What was chosen for a graph is found on disk: nothing is planned, compiled or timed again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

from refold.backend import choose, graphs, kept
from refold.backend.kept import key_of
from refold.backend.report import collected

from .steps import all_ours, check, compiled

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def kept_here(nothing_kept: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On disk, in a folder of this test."""
    monkeypatch.setattr(kept, "key_of", key_of)
    with fresh_cache():
        yield


def once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process: Dynamo has forgotten, and whoever plans fails."""

    def planned(*args: object) -> None:
        raise AssertionError("it is chosen again")

    torch._dynamo.reset()
    monkeypatch.setattr(choose, "chosen", planned)


class Net(nn.Module):
    """A product with statistics, and a tensor that the graph holds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(self.layer(x)).relu() * torch.tensor([1.0, 2.0] * 8)
        return made


def step_of(run: Any, net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    net.zero_grad()
    made = run(x)
    made.square().sum().backward()
    return [made.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


def test_steps_of_training_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net(), torch.randn(6, 8)
    with all_ours(), collected() as first:
        wanted = step_of(compiled(net), net, x)
    once_more(monkeypatch)
    with all_ours(), collected() as second:
        found = step_of(compiled(net), net, x)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert [(g.kind, g.by, g.kept) for g in first] == [
        ("forward", "refold", False),
        ("backward", "refold", False),
    ]
    assert [(g.kind, g.by, g.kept) for g in second] == [
        ("forward", "refold", True),
        ("backward", "refold", True),
    ]
    assert [g.text for g in first] == [g.text for g in second]
    assert "found on disk" in str(second[0])


@pytest.mark.parametrize("autograd", [True, False], ids=["of_the_module", "of_the_graph"])
def test_sizes_that_vary_are_found(monkeypatch: pytest.MonkeyPatch, autograd: bool) -> None:
    """By AOTAutograd's cache, and where that is off by each graph's key."""
    net, calls = Net(), [[torch.randn(n, 8)] for n in (6, 9, 5)]
    with torch._functorch.config.patch(enable_autograd_cache=autograd):
        check(net, calls, made=lambda m: compiled(m, dynamic=True))
        once_more(monkeypatch)
        found = check(net, calls, made=lambda m: compiled(m, dynamic=True))
    assert [(g.kind, g.kept) for g in found] == [("forward", True), ("backward", True)]


def test_another_option_is_another_choice() -> None:
    net, x = Net(), torch.randn(6, 8)
    seen = []
    for options in ({}, {"strict": True}, {}):
        torch._dynamo.reset()
        with all_ours(), collected() as found, torch.no_grad():
            compiled(net, options=options)(x)
        seen += [g.kept for g in found]
    assert seen == [False, False, True]


def test_what_failed_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an error of ours nor a compiler that is missing: the next process tries again."""
    net, x = nn.Linear(8, 16), torch.randn(6, 8)
    own = graphs.emit_function

    def without_compiler(*args: Any) -> str:
        return own(*args).replace("_refold_build()\n", '(None, "there is no compiler")\n')

    def broken(*args: Any) -> str:
        raise ZeroDivisionError("seeded")

    for emit, by in ((broken, "inductor"), (without_compiler, "inductor"), (own, "refold")):
        torch._dynamo.reset()
        monkeypatch.setattr(graphs, "emit_function", emit)
        with all_ours(), collected() as found, torch.no_grad():
            compiled(nn.Sequential(net, nn.GELU()))(x)
        assert [(g.by, g.kept) for g in found] == [(by, False)]


def test_kernels_that_cannot_be_loaded_are_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net(), torch.randn(6, 8)
    with all_ours(), torch.no_grad():
        wanted = compiled(net)(x)
    torch._dynamo.reset()

    def unbuilt(*args: Any) -> Any:
        raise kept.Unbuilt("there is no compiler")

    monkeypatch.setattr(kept, "load", unbuilt)
    with all_ours(), collected() as found, torch.no_grad():
        assert torch.allclose(compiled(net)(x), wanted)
    assert [g.kept for g in found] == [False]


def test_other_versions_of_the_caches_keep_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor.codecache import FxGraphCache

    monkeypatch.setattr(kept, "_told", set())
    monkeypatch.delattr(FxGraphCache, "prepare_key")
    net, x = Net().eval(), torch.randn(6, 8)
    with all_ours(), torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "chosen", lambda *args: (args[1].forward, None, False))
        patch.setattr("refold.backend.report.tell", lambda *args: None)
        assert kept.key_of(kept.BackendOptions(), nn.Module(), [x], {}) is None
        assert kept.key_of(kept.BackendOptions(), nn.Module(), [x], {}) is None
    (told,) = (r.getMessage() for r in caplog.records if r.name.startswith("refold"))
    assert "a compiled graph is not kept on disk (AttributeError" in told and net is not None


SCRIPT = """
import torch
from torch import nn
from tests.backend.steps import all_ours, compiled, parts_alone
from refold.backend.report import collected

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 4), nn.GELU())
with all_ours(), parts_alone(), collected() as found:
    made = compiled(net)(torch.randn(6, 8))
    made.sum().backward()
print([(g.kind, g.by, g.kept, g.parts > 0) for g in found])
print(sum(float(p.grad.abs().sum()) for p in net.parameters()))
"""


def test_parts_are_found_by_another_process(tmp_path: Path) -> None:
    """Their operators are made again."""
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ
            | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said[0][1] == said[1][1]
    assert "'refold', False, True)" in said[0][0] and "'refold', True, True)" in said[1][0]


def test_each_type_of_autocast_is_a_graph_of_its_own() -> None:
    """PyTorch 2.11's cache asks whether autocast is on, and not to which type it casts."""
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(3, 8)
    run = compiled(model)
    with all_ours():
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            with torch.autocast("cpu", dtype):
                made, wanted = run(x), model(x)
            assert made.dtype == wanted.dtype == dtype
            made.float().sum().backward()
        assert run(x).dtype == torch.float32
