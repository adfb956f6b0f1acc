"""Graphs that are captured as CUDA graphs: Inductor captures them, with our part as an operator.

What Inductor does with the graph that it is given is tested on a GPU (tests/gpu/test_captured.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from refold.backend import choose, refold
from refold.backend.loaded import load
from refold.backend.report import collected

from .by_plan import by_plans
from .steps import all_ours, check, compiled


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if it were on a GPU."""
    monkeypatch.setattr(choose, "_captured", lambda *args: True)
    with by_plans():
        yield


class Net(nn.Module):
    """Statistics are written, and results are views of one another and of an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.head(self.layers(x))
        return made, made[:, :2], x.view(-1)[2:]


@pytest.mark.usefixtures("captured")
def test_a_graph_is_one_operator_in_inductors() -> None:
    net, calls = Net(), [[torch.randn(6, 8, requires_grad=True)] for _ in range(2)]
    found = check(net, calls)
    assert [(g.kind, g.parts, g.share) for g in found] == [
        ("forward", 1, 1.0),
        ("backward", 1, 1.0),
    ]


@pytest.mark.usefixtures("captured")
def test_what_is_drawn_is_inductors_and_the_rest_is_in_parts() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 4), nn.GELU())
    with all_ours(), collected() as found:
        compiled(model)(torch.randn(6, 8)).sum().backward()
    assert {g.by for g in found} <= {"refold", "inductor"} and len(found) == 2
    assert all("failed" not in g.reason for g in found)


@pytest.mark.parametrize(
    ("mode", "options", "asked"),
    [
        (None, {"graphs": True}, True),
        ("reduce-overhead", {}, True),
        ("reduce-overhead", {"graphs": True}, True),
        ("max-autotune-no-cudagraphs", {}, None),
        (None, {}, None),
    ],
)
def test_inductor_is_asked_for_cuda_graphs(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, options: dict[str, Any], asked: bool | None
) -> None:
    import torch._inductor.compile_fx as inductor

    seen: list[Any] = []

    def compile_fx(module: Any, inputs: Any, inner: Any, config_patches: Any) -> Any:
        seen.append((config_patches or {}).get("triton.cudagraphs"))
        return module.forward

    monkeypatch.setattr(inductor, "compile_fx", compile_fx)
    backend = functools.partial(refold, mode=mode, options=options)
    torch.compile(nn.Linear(4, 4), backend=backend)(torch.randn(2, 4))
    assert seen == [asked]


def test_kernels_keep_no_memory_between_calls_that_are_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool of a CUDA graph may hold nothing that its graphs do not give."""
    text = "_refold_problem = None\n_refold_workspaces = {}\n\n\ndef call(args):\n"
    text += "    _refold_workspaces[0] = 1\n    return [len(_refold_workspaces)]\n"
    assert load(text)([]) == [1]
    assert load(text, captured=True)([]) == [0]
