"""A transposed convolution of volumes, a factor, batch norm, global average pooling."""

import torch
from torch import nn

batch_size, in_channels, out_channels = 4, 16, 32
depth, height, width, kernel_size = 12, 24, 24, 5


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size)
        self.norm = nn.BatchNorm3d(out_channels)
        self.pool = nn.AdaptiveAvgPool3d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.pool(self.norm(self.conv(x) * 2.0))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size]
