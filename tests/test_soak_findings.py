"""What soaks found (`make soak`), each as the smallest program that shows it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from refold import introspect
from refold.judge.ask.given import duplicate
from soak_models import Named
from soak_subjects import FORMS, Subject

Step = dict[str, Any]

_TEXT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

n = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {names}):
{forward}


def get_inputs():
    return [{inputs}]
"""


@dataclass(frozen=True)
class Finding:
    """init, forward: lines of the model. inputs: of get_inputs, n being the batch size. steps:
    behind the module's construction. given: kinds of inputs beside x0, see `soak_programs`."""

    says: str
    init: str
    forward: str
    inputs: str
    steps: tuple[Step, ...]
    given: tuple[tuple[str, str, int], ...] = ()

    @property
    def text(self) -> str:
        init, forward = (textwrap.indent(t, " " * 8) for t in (self.init, self.forward))
        names = ", ".join("xyz"[: self.inputs.count("torch.")])
        return _TEXT.format(init=init, forward=forward, names=names, inputs=self.inputs)

    @property
    def program(self) -> dict[str, Any]:
        inputs = {f"x{i}": {"batch": 6, "how": "plain"} for i in range(4)}
        inputs |= {name: {"batch": batch, "how": how} for name, how, batch in self.given}
        return {"inputs": inputs, "steps": [{"do": "build", "state": ""}, *self.steps]}


def mode(train: bool, path: str = "") -> Step:
    return {"do": "mode", "train": train, "path": path}


def call(label: str, inputs: str = "x0", **more: Any) -> Step:
    return {"do": "call", "inputs": inputs, "label": label, **more}


FINDINGS = (
    Finding(
        "PyTorch does not count its writes to a batch norm's statistics: a backward of an earlier"
        " call takes them",
        "self.m0 = nn.BatchNorm1d(5)",
        "return torch.relu(self.m0(x))",
        "torch.randn(n, 5)",
        (
            mode(True),
            call("first", grad=True),
            call("second"),
            {"do": "backward", "of": "first"},
            {"do": "grads", "names": ["m0.weight"], "label": "gradients"},
            mode(False),
            call("in eval mode"),
        ),
    ),
    Finding(
        "Results want gradients because of parameters that cannot change them, too",
        "self.m0 = nn.Linear(5, 7)",
        "y = self.m0(x)\nreturn (y - y.mean(-1, keepdim=True)).sum(-1)",
        "torch.randn(n, 5)",
        (
            call("first", grad=True),
            {"do": "backward", "of": "first"},
            {"do": "grads", "names": ["m0.weight", "m0.bias"], "label": "gradients"},
        ),
    ),
    Finding(
        "A forward that is patched by a function of the same name is another (functools.wraps)",
        "self.m0 = nn.Linear(5, 7)",
        "return self.m0(x).sum(-1)",
        "torch.randn(n, 5)",
        (call("before"), {"do": "patch", "path": ""}, call("after"), call("again")),
    ),
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.says.split(":")[0][:40])
def test_finding(finding, form):
    Subject(Named(finding.text, form, "torch")).check(finding.program)


BLOCK = """\
import torch
import torch.nn as nn

n = 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x):
        return self.linear(x).relu()
"""
OF_BLOCKS = f"""{BLOCK}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).sum(-1)


def get_inputs():
    return [torch.randn(n, 5)]
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_is_defined_anew_is_followed(form):
    """As in a notebook: a class of the same name takes the place of a part's."""
    one = Subject(Named(OF_BLOCKS, form, "torch"))
    x = one.draw(6)
    for does, takes in ((torch.tanh, BLOCK.replace("relu", "tanh")), (torch.relu, BLOCK)):
        fast, space = duplicate(one.fast).eval(), {"__name__": "defined.anew"}
        exec(takes, space)
        with torch.no_grad():
            fast(*x)
            fast.block.__class__ = space["Block"]
            expected = does(fast.block.linear(*x)).sum(-1)
            torch.testing.assert_close(fast(*x), expected)
            # one that does what the old one did is computed as before
            assert (introspect.fallback_reason(fast, x) is None) == (does is torch.relu)
