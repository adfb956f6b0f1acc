"""What a family says it can compute, as small functions: its tests are made of them.

tests/test_families.py plans each sample for every kind of device, and runs all of them in every
dtype, with other sizes, at odd addresses, and with NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

ROWS = "rows"  # a size that varies from call to call
Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Sample:
    """A small function.

    function: of tensors of `shapes`, which calls give, then of parameters of `weights`. rows: what
    ROWS stands for when the function is captured. refused: no kernel of the family computes it,
    whatever the device. only: the toolchain of the devices that have kernels for it, or a feature
    that they have; all devices have kernels, where it is empty.
    """

    name: str
    function: Callable[..., torch.Tensor]
    shapes: tuple[Shape, ...]
    weights: tuple[tuple[int, ...], ...] = ()
    rows: int = 5
    refused: bool = False
    only: str = ""

    def module(self) -> nn.Module:
        """The function as a module; its parameters are drawn from the current random state."""
        return _Function(self)

    def inputs(self, rows: int | None = None) -> list[torch.Tensor]:
        """Inputs for so many rows, drawn from the current random state."""
        count = self.rows if rows is None else rows
        shapes = ([count if d == ROWS else int(d) for d in shape] for shape in self.shapes)
        return [torch.randn(shape) for shape in shapes]


class _Function(nn.Module):
    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.function = sample.function
        drawn = (torch.randn(shape) / max(shape[-1], 1) ** 0.5 for shape in sample.weights)
        self.weights = nn.ParameterList(drawn)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.weights)
