"""Sizes that are no polynomials are found before what takes longest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold.capture import CaptureError, capture
from refold.capture.sizes import check_sizes
from refold.ir import Sym


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.relu(x[:, :, ::2])  # nothing reads it
        return torch.relu(self.conv(x))


class Unread(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.relu(x[:, ::2])
        return torch.relu(x)


def exported(module: nn.Module, x: torch.Tensor) -> torch.fx.Graph:
    shapes = (dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO),)
    return torch.export.export(module, (x,), dynamic_shapes=shapes, strict=False).graph


def test_sizes_in_the_way_are_fixed_before_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.export.ExportedProgram.run_decompositions
    calls: list[object] = []

    def counted(self: torch.export.ExportedProgram, *given: object) -> object:
        calls.append(self)
        return plain(self, *given)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    x = torch.randn(2, 3, 9, 11)
    captured = capture(Strided(), (x,), training=False)
    shape = captured.fields[0].shape
    # the images' sizes are fixed, one after the other, and the batch is not
    assert shape is not None and isinstance(shape[0], Sym) and shape[1:] == (3, 9, 11)
    assert not calls  # nothing is written, so that there is nothing to decompose


def test_what_no_result_needs_is_not_asked() -> None:
    check_sizes(exported(Unread(), torch.randn(6, 8)))
    with pytest.raises(CaptureError, match=r"^a size is .*//2.*, which is no polynomial$"):
        check_sizes(exported(Strided(), torch.randn(2, 3, 9, 11)))
