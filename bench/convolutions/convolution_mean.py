"""A convolution, global average pooling, a linear layer."""

import torch
from torch import nn

batch_size, in_channels, out_channels, classes = 16, 32, 64, 100
height, width, kernel_size = 64, 64, 3


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(out_channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.pool(self.conv(x)).flatten(1))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size, classes]
