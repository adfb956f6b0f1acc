"""A transposed convolution, its mean over all places, a bias, logsumexp, a sum."""

import torch
from torch import nn

batch_size, in_channels, out_channels = 128, 3, 16
height, width, kernel_size = 32, 32, 3


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).mean(dim=(2, 3), keepdim=True) + self.bias
        return torch.logsumexp(y, dim=1, keepdim=True).sum(dim=(2, 3)) * 10.0


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs() -> list[int]:
    return [in_channels, out_channels, kernel_size]
