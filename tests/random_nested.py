"""Random models of parts within parts, whose forward reads what programs change: lists of layers,
numbers and switches of parts, tied weights, a table in the module, names of the file."""

from __future__ import annotations

from random_models import Choose

_TEXT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

n = 6
GAIN = {gain}
TABLE = {{"shift": 0.5}}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential({layers})
        self.norm = {norm}
        self.scale = 0.5
        self.residual = {residual}
        self.gate = nn.Parameter(torch.randn({width}) * 0.2 + 1.0)

    def forward(self, x):
        y = self.inner(x)
        y = {inside}
        if self.residual:
            y = x + y * self.scale
        return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear({width}, {width})
        self.blocks = nn.ModuleList([Block() for _ in range({count})])
        self.parts = nn.ModuleDict({{"a": nn.Linear({width}, {out}), "b": {other}}})
        self.last = "a"
        self.skip = {skip}
        self.options = {{"power": 2.0, "mean": True}}
        self.register_buffer("mask", torch.ones({width}))
        {tied}

    def forward(self, x{more}):
        x = x * self.mask * GAIN + TABLE["shift"]
        x = {begins}
        for i, block in enumerate(self.blocks):
            if self.skip and i % 2:
                continue
            x = block(x)
        y = self.parts[self.last]({between})
        if self.options["mean"]:
            y = y - y.mean(-1, keepdim=True)
        return {result}


def get_inputs():
    return [{inputs}]
"""


def nested_text(choose: Choose) -> str:
    """The text of a random model; `choose` takes one of a sequence, the simplest first."""
    width = choose((4, 8, 24))
    wide = choose((width, 2 * width))
    out = choose((1, 3, width))
    deep = choose((False, True))
    norms = [f"nn.LayerNorm({width})", "nn.Identity()", f"nn.RMSNorm({width})"]
    if not deep:
        norms.append(f"nn.BatchNorm1d({width})")
    linear = f"nn.Linear({width}, {width})"
    layers = choose(
        (
            linear,
            f"{linear}, nn.ReLU()",
            f"nn.Linear({width}, {wide}), nn.GELU(), nn.Linear({wide}, {width})",
            f"{linear}, nn.Dropout(0.2), nn.Linear({width}, {width}, bias=False)",
        )
    )
    second = choose(("", "", "mask=None", "other"))
    between = choose(("x", "self.first(x)", "x * 2", "x.mean(-2, keepdim=True)" if deep else "-x"))
    extra = {"": "", "mask=None": "x if mask is None else x * mask", "other": "x + other"}[second]
    return _TEXT.format(
        gain=choose((1.0, 2.0)),
        layers=layers,
        norm=choose(norms),
        residual=choose((True, False)),
        width=width,
        inside=choose(
            ("self.norm(y)", "self.norm(y) * self.gate", "torch.relu(self.norm(y * self.gate))")
        ),
        count=choose((1, 2, 3)),
        out=out,
        other=choose((f"nn.Linear({width}, {out})", f"nn.Linear({width}, {out}, bias=False)")),
        skip=choose((False, True)),
        tied=choose(
            (
                "pass",
                "self.blocks[-1].gate = self.blocks[0].gate",
                "self.parts['b'].weight = self.parts['a'].weight",
            )
        ),
        more=f", {second}" if second else "",
        begins=choose((extra or "x", f"self.first({extra or 'x'})")),
        between=between,
        result=choose(
            (
                "y",
                "y.sum(-1)",
                "{'y': y, 'x': x}",
                "(y ** self.options['power']).mean(-1)",
                "y.softmax(-1), x",
            )
        ),
        inputs=", ".join(
            [f"torch.randn(n, {'5, ' if deep else ''}{width})"] * (2 if second == "other" else 1)
        ),
    )
