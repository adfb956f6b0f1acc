"""A product of little depth: what it costs is the writing of its result."""

import torch
from torch import nn

rows, columns, depth = 16384, 16384, 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, depth), torch.randn(depth, columns)]


def get_init_inputs() -> list[int]:
    return []
