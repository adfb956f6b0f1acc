"""What a call pays behind a change: a write to parameters, a setting that comes and goes."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import refold
from lives import at_once
from refold import twin

WIDTH = 96  # a weight is larger than what is compared whole at every call


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = (
            nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, 8),
        )
        self.scale = 1.0
        self.told = [1.0]

    def forward(self, x):
        return self.b(self.norm(self.a(x)).relu()).mean(-1) * self.scale * self.told[0]


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    with at_once(refold.optimize(Net().eval(), torch.randn(8, WIDTH), measure=False)) as fast:
        yield fast


@pytest.fixture
def looked(made, monkeypatch):
    """The structures that were looked for."""
    found: list[object] = []
    for program, _ in twin.state_of(made).programs:
        kind = program.namespace._RefoldStructure
        init = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda *a, init=init: found.append(a) or init(*a))
    return found


def agrees(fast: nn.Module) -> bool:
    x = torch.randn(5, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), twin.original(fast)(x), rtol=1e-4, atol=1e-5)
    return refold.status(fast).fast


def test_a_write_to_parameters_looks_for_no_structure(made, looked):
    assert agrees(made)
    looked.clear()
    for write in (
        lambda: made.a.weight.add_(1),
        lambda: made.b.weight.data.mul_(2),
        lambda: made.norm.running_var.add_(1),
        lambda: made.load_state_dict(made.state_dict()),
    ):
        with torch.no_grad():
            write()
        assert agrees(made)
    assert not looked
    made.b.weight = nn.Parameter(made.b.weight.detach() * 3)
    assert agrees(made) and len(looked) == 1


@pytest.mark.parametrize("name", ["scale", "told"])
def test_a_setting_that_comes_and_goes_is_looked_at_once(made, looked, name, monkeypatch):
    monkeypatch.setattr(twin.state_of(made), "grow", None)

    def set_to(value: float) -> None:
        if name == "scale":
            made.scale = value
        else:
            made.told[0] = value

    for at in range(4):
        assert agrees(made)
        set_to(3.0)
        assert not agrees(made)
        if at % 2:  # nobody counts it, and no call that is fast sees it
            made.b.weight.data[0, at] += 5
        set_to(1.0)
    assert agrees(made)
    assert len(looked) <= 2


def test_what_went_is_held_by_nobody(made):
    """A structure that is known still holds no parameter that the model has no more."""
    assert agrees(made)
    gone = weakref.ref(made.b.weight)
    made.scale = 5.0
    agrees(made)
    made.b.weight = nn.Parameter(made.b.weight.detach() * 2)
    made.scale = 1.0
    assert agrees(made)
    made.scale = 6.0
    agrees(made)
    made.scale = 1.0
    assert agrees(made)
    gc.collect()
    assert gone() is None


def test_what_holds_for_all_programs_is_asked_once(made, monkeypatch):
    """No program is made for what passes, and one refusal says it for all."""
    state = twin.state_of(made)
    asked = []
    monkeypatch.setattr(state, "grow", lambda *a: pytest.fail("made"))
    monkeypatch.setattr(state, "programs", [*state.programs] * 3)
    for program, _ in state.programs[:1]:
        attempt = program.attempt
        monkeypatch.setattr(
            program, "attempt", lambda *a, go=attempt, **k: asked.append(1) or go(*a, **k)
        )
    x = torch.randn(5, WIDTH)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert made(x).dtype is torch.bfloat16
    assert len(asked) == 1
    assert made(x).requires_grad and len(asked) == 4
