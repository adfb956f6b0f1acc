"""A convolution, mean pooling, a sigmoid, a sum over everything but the batch."""

import torch
from torch import nn

batch_size, in_channels, out_channels = 64, 6, 48
height, width, kernel_size, window = 160, 160, 3, 4


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, window: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.pool = nn.AvgPool2d(window)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.pool(self.conv(x))).sum(dim=(1, 2, 3))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size, window]
