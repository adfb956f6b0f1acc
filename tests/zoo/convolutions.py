"""Convolutions: sums that need none, factors and batch norm that go into their weights.

They are large enough for the rewritten form to cost less (`tests/test_plans.py` checks it).
"""

from __future__ import annotations

import torch
from torch import nn

from zoo.registry import case, rand


@case
class TransposedMean(nn.Module):
    """The mean over all places of a transposed convolution is a product of two sums."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(5, 44, (3, 4), stride=(2, 1), output_padding=(1, 0))
        self.bias = nn.Parameter(torch.randn(44, 1, 1))

    def forward(self, x):
        y = self.conv(x).mean((2, 3), keepdim=True) + self.bias
        return torch.logsumexp(y, 1, keepdim=True).sum((2, 3)) * 10.0

    def inputs(self):
        return [rand(3, 5, 39, 27)]


@case
class ConvolutionMean(nn.Module):
    """The same of a convolution, whose windows leave out a few rows and columns."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(7, 66, (3, 5), padding=(1, 2), bias=False)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x)).flatten(1)

    def inputs(self):
        return [rand(2, 7, 51, 38)]


@case
class ConvolutionSums(nn.Module):
    """Two images, one convolution; and a sum over everything but the batch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(7, 66, 3)

    def forward(self, x, z):
        return self.conv(x).sum((-1, -2)) * self.conv(z).mean((1, 2, 3))[:, None]

    def inputs(self):
        return [rand(2, 7, 46, 59), rand(2, 7, 47, 35)]


@case
class ResidualBlock(nn.Module):
    """In eval mode both batch norms are a part of their convolutions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Conv2d(6, 6, 3, padding=1, bias=False) for _ in range(2))
        self.m, self.n = nn.BatchNorm2d(6), nn.BatchNorm2d(6)

    def forward(self, x):
        y = torch.relu(self.m(self.a(x)))
        return torch.relu(self.n(self.b(y)) + x)

    def inputs(self):
        return [rand(3, 6, 8, 8)]


@case
class GroupedConvolution(nn.Module):
    """Groups, dilation and strides; factors of channels and numbers."""

    def __init__(self):
        super().__init__()
        self.depth = nn.Conv2d(6, 12, 3, stride=2, dilation=2, padding=2, groups=6)
        self.point = nn.Conv2d(12, 4, 1)
        self.norm = nn.BatchNorm2d(12)
        self.gain = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        y = torch.nn.functional.hardswish(self.norm(self.depth(x)))
        return (self.point(y) * self.gain - 0.5) * 2.0

    def inputs(self):
        return [rand(2, 6, 13, 15)]


@case
class TransposedChannels(nn.Module):
    """A factor and a shift of channels behind a transposed convolution, in groups and without."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1)
        self.more = nn.ConvTranspose2d(6, 6, 3, groups=3, bias=False)
        self.norm, self.last = nn.BatchNorm2d(6), nn.BatchNorm2d(6)

    def forward(self, x):
        return self.last(self.more(torch.tanh(self.norm(self.up(x)))))

    def inputs(self):
        return [rand(2, 4, 5, 6)]


@case
class MeanOfChannels(nn.Module):
    """One channel of the mean weights, of the summed weights."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 10, 3, stride=2, padding=1)
        self.b = nn.ConvTranspose2d(3, 7, 3, bias=False)

    def forward(self, x):
        return torch.sigmoid(self.a(x).mean(1)), self.b(x).sum(1, keepdim=True) + 1.0

    def inputs(self):
        return [rand(2, 3, 9, 7)]
