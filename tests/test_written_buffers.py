"""What forward writes to buffers is read from the exported program itself, as a result; where that
is not plain, of the program that torch.export makes without writes. Both are one graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold.capture import capture, functional
from refold.ir import render


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.plain = nn.BatchNorm2d(4, affine=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x):
        self.calls.add_(3)
        return self.plain(self.norm(self.conv(x)).relu_())


class Widened(Norms):
    def forward(self, x):
        return self.norm(self.conv(x).bfloat16()).float()


class Twice(Norms):
    def forward(self, x):
        return self.norm(self.norm(self.conv(x)))


class Read(Norms):
    def forward(self, x):
        return self.norm(self.conv(x)), self.norm.running_mean * 2


class Given(Norms):
    def forward(self, x):
        return self.norm(self.conv(x)), self.calls.add_(1)


class Shared(Norms):
    def __init__(self):
        super().__init__()
        both = torch.zeros(8)
        self.norm.running_mean, self.plain.running_mean = both[:4], both[4:]


PLAIN = [Norms, Widened]
OTHERS = [Twice, Read, Given, Shared]


@pytest.mark.parametrize("kind", PLAIN + OTHERS)
def test_what_is_written_is_read_as_a_result(kind, monkeypatch):
    torch.manual_seed(0)
    model, x = kind(), torch.randn(2, 3, 8, 8)
    made = []
    whole = torch.export.ExportedProgram.run_decompositions

    def followed(program, *args):
        made.append(program)
        return whole(program, *args)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", followed)
    found = render(capture(model, [x], training=True).graph)
    assert bool(made) == (kind in OTHERS)  # all calls are followed anew only where they have to be
    monkeypatch.setattr(functional, "kept_buffers", lambda program: {})
    assert render(capture(model, [x], training=True).graph) == found
    assert "write" in found
