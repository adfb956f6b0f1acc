"""New modules of one file: built, or copies of an unused one where that takes long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from refold.judge import judge
from refold.judge.verdict.session import Session
from refold.judge.worker import builds
from refold.judge.worker.builds import Builds


class _Clock:
    """It goes on where a module is built, and nowhere else: other processes take no time of it."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "time", SimpleNamespace(perf_counter=lambda: _Clock.now))


class _Counted(nn.Module):
    built = 0

    def __init__(self, seconds: float) -> None:
        super().__init__()
        _Clock.now += seconds
        type(self).built += 1
        self.linear = nn.Linear(3, 2)


class _Single(_Counted):
    built = 0

    def __deepcopy__(self, _: Any) -> nn.Module:
        raise TypeError("there is one of it")


class _Closed(_Counted):
    built = 0

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.parts = {"first": [lambda x: self.linear(x)]}


def _made(kind: type[_Counted], seconds: float) -> tuple[Builds, type[_Counted]]:
    kind.built = 0

    def construct(_: list[Any] | None) -> nn.Module:
        torch.manual_seed(5)
        return kind(seconds)

    return Builds(construct), kind


@pytest.mark.parametrize(("seconds", "built"), [(0.0, 5), (0.12, 2)])
@pytest.mark.usefixtures("clock")
def test_what_takes_long_is_copied(seconds: float, built: int) -> None:
    make, kind = _made(_Counted, seconds)
    modules, states = [], []
    for _ in range(5):
        modules.append(make())
        states.append(torch.get_rng_state())
    assert kind.built == built
    first = modules[0].state_dict()
    for module, state in zip(modules, states, strict=True):
        assert all(torch.equal(v, first[k]) for k, v in module.state_dict().items())
        assert torch.equal(state, states[0])  # what follows draws what it would draw
    with torch.no_grad():
        modules[1].linear.weight.zero_()  # type: ignore[union-attr,operator]
    assert torch.equal(make().state_dict()["linear.weight"], first["linear.weight"])


@pytest.mark.usefixtures("clock")
def test_one_that_is_wanted_anew_is_built() -> None:
    make, kind = _made(_Counted, 0.12)
    for _ in range(3):
        make()
    make(anew=True)
    make([])  # of other arguments
    assert kind.built == 4


@pytest.mark.usefixtures("clock")
def test_what_can_not_be_copied_is_built() -> None:
    make, kind = _made(_Single, 0.12)
    for _ in range(4):
        make()
    assert kind.built == 4


_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, 3)
    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(4, 5)]

def get_init_inputs():
    return [5]
"""

_STALE = """
import time
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        time.sleep(0.12)
        self.linear = nn.Linear(n, 3)
        self.fold, self.honest = None, False
    def __deepcopy__(self, memo):
        made = type(self)(self.linear.in_features)
        made.load_state_dict(self.state_dict())
        made.honest = True
        return made
    def forward(self, x):
        w = self.linear.weight
        if self.fold is None or self.fold[1] != (w.data_ptr(), w._version):
            self.fold = (w.detach().clone(), (w.data_ptr(), w._version))
        w = w if self.honest or torch.is_grad_enabled() else self.fold[0]
        return nn.functional.linear(x, w, self.linear.bias)
"""


@pytest.mark.parametrize("alone", [True, False])
def test_a_class_whose_copies_alone_are_honest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """It never sees a write by ``.data``; its copies do. One life of five is of no copy; none is
    where a test is asked for alone."""
    monkeypatch.setattr(Session, "alone", alone)
    (tmp_path / "ref.py").write_text(_REFERENCE)
    (tmp_path / "cand.py").write_text(_STALE)
    paths = tmp_path / "ref.py", tmp_path / "cand.py"
    verdict = judge(*paths, only=["uncounted writes"], timing=False, quick=True, secret=3)
    assert not verdict.accepted


@pytest.mark.usefixtures("clock")
def test_what_a_copy_would_read_of_the_original_is_built_each_time() -> None:
    make, kind = _made(_Closed, 0.12)
    modules = [make() for _ in range(4)]
    assert kind.built == 4
    for module in modules:
        assert module.parts["first"][0].__closure__[0].cell_contents is module  # type: ignore
