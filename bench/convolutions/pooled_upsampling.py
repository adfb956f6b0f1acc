"""A volume is upsampled, scaled, pooled again, shifted: what is left is a small convolution."""

import torch
from torch import nn

batch_size, in_channels, out_channels, kernel_size = 64, 4, 24, 3
depth, height, width = 12, 24, 24


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=2, padding=1)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.pool = nn.AvgPool3d(2)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.pool(self.up(x) * self.scale)
        return y + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size]
