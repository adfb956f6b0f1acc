"""The table of cases."""

from __future__ import annotations

import torch
from torch import nn

CASES: dict[str, type[nn.Module]] = {}


def case(cls: type[nn.Module]) -> type[nn.Module]:
    CASES[cls.__name__] = cls
    return cls


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)
