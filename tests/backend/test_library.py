"""The models of bench/library.py as their users call them, each graph as its plan says it.

Every graph that can be read is ours; no kernel is compiled (by_plan.py).
"""

from __future__ import annotations

import copy
import functools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from refold.backend import refold
from refold.backend.report import collected

from .by_plan import by_plans
from .steps import all_ours

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from library import MODELS, made
from models import Run, classes, errors, generation, inference, training

BUILD = {"inference": inference, "training": training}


def built(name: str) -> tuple[torch.nn.Module, Any]:
    try:
        return made(name, MODELS[name].small)
    except ImportError as error:
        pytest.skip(str(error))


def ours(run: Run) -> Run:
    run.module.compile(backend=functools.partial(refold, options={"measure": False}))
    return run


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", BUILD)
def test_a_model_computes_the_same(name: str, kind: str) -> None:
    """Results of the very classes, with eager's errors or gradients with eager's."""
    model, call = built(name)
    sides = {"eager": BUILD[kind](model, call)}
    with by_plans(), all_ours(), collected() as found:
        sides["refold"] = ours(BUILD[kind](copy.deepcopy(model), call))
        state = copy.deepcopy(model.state_dict())
        results = [classes(side.call()) for side in sides.values()]
        for side in sides.values():
            side.module.load_state_dict(state)
        ratio = None
        if not (kind == "training" and MODELS[name].draws):
            ratio = errors(sides, kind, call)["refold"]
    assert results[0] == results[1]
    said = [g.reason for g in found]
    # a graph that drops out draws numbers, which is Inductor's
    assert all("failed" not in r and (MODELS[name].draws or "cannot be" not in r) for r in said)
    # where a ReLU turns by rounding, a gradient is another: its own error says little
    bar = 16 if kind == "inference" or "net" not in name else 1e4
    assert ratio is None or ratio < bar, (ratio, [str(g) for g in found])


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.generates])
def test_the_same_tokens_are_generated(name: str) -> None:
    model, call = built(name)
    eager = generation(model, call).call()
    with by_plans(), all_ours():
        mine = ours(generation(copy.deepcopy(model), call)).call()
    assert torch.equal(eager, mine)
