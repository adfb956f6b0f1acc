"""Pooling: behind convolutions, which may take it in, and by itself."""

from __future__ import annotations

import torch
from torch import nn

from zoo.registry import case, rand


@case
class PooledConvolution(nn.Module):
    """A convolution takes in what is behind it: a factor, pooling twice, a shift."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 40, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(40, 1, 1) + 0.5)
        self.norm = nn.BatchNorm2d(40)

    def forward(self, x):
        y = nn.functional.avg_pool2d(self.conv(x) * self.scale, 2)
        y = nn.functional.adaptive_avg_pool2d(self.norm(y), (6, 5))
        return torch.sigmoid(y).sum((1, 2, 3)), y.mean((2, 3))

    def inputs(self):
        return [rand(3, 6, 48, 40)]


@case
class PooledUpsampling(nn.Module):
    """Windows that gather what transposed convolutions spread, in three dimensions and in one."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(6, 24, 3, stride=2, padding=1, groups=2)
        self.line = nn.Conv1d(5, 32, 3, stride=2)
        self.pools = nn.AvgPool3d(2), nn.AvgPool1d(4)
        self.bias = nn.Parameter(torch.randn(24, 1, 1, 1))

    def forward(self, x, z):
        return self.pools[0](self.up(x)) + self.bias, torch.tanh(self.pools[1](self.line(z)))

    def inputs(self):
        return [rand(2, 6, 9, 11, 10), rand(3, 5, 515)]


@case
class UnevenPooling(nn.Module):
    """Pooling that stays: padded, overlapping, behind what no convolution takes in."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 12, 3, stride=2)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        padded = nn.functional.avg_pool2d(y, 3, 1, padding=1)
        return nn.functional.avg_pool2d(y * 2.0 + 1.0, 3, 2), padded + y

    def inputs(self):
        return [rand(2, 4, 25, 30)]


@case
class LargestOfWindows(nn.Module):
    """Largest elements of windows of images and volumes, with what is pointwise around them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.scale = nn.Parameter(torch.randn(8, 1, 1))
        self.volume = nn.Conv3d(2, 4, 3, padding=1)

    def forward(self, x, z):
        y = nn.functional.max_pool2d(torch.tanh(self.conv(x) + self.scale), 3, 2, 1)
        y = nn.functional.hardswish(nn.functional.max_pool2d(nn.functional.gelu(y), 2))
        v = nn.functional.max_pool3d(nn.functional.max_pool3d(self.volume(z), 2), (1, 2, 3))
        return y, v.sum(1), nn.functional.max_pool2d(z[:, 0], 2, ceil_mode=True)

    def inputs(self):
        return [rand(2, 3, 27, 35), rand(2, 2, 6, 13, 24)]


@case
class LongLines(nn.Module):
    """Windows along long lines that overlap, with NaN and infinity among the elements."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3, 1))

    def forward(self, x):
        largest = nn.functional.max_pool1d(x * self.scale, 8, 1, 4, 3)
        means = nn.functional.avg_pool1d(torch.sin(x), 5, 2, 2, count_include_pad=False)
        last = nn.functional.avg_pool1d(x, 3, 2, 0, True)
        tall = nn.functional.max_pool2d(x.unflatten(-1, (2, -1)), (1, 4), 1, (0, 2))
        return largest, means - 1.0, last, tall

    def inputs(self):
        x = rand(2, 3, 2102)
        x[0, 1, 2101] = torch.nan
        x[1, 2, 0] = torch.inf
        return [x]
