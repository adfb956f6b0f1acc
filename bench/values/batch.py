"""A batch of products of two inputs, none of which lies as tensor cores want it."""

import torch
from torch import nn

batch_size, rows, columns, depth = 96, 640, 896, 768


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.bmm(x.transpose(1, 2), y) * 0.5)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, depth, rows), torch.randn(batch_size, depth, columns)]


def get_init_inputs() -> list[int]:
    return []
