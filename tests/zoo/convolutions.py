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


@case
class StridedMean(nn.Module):
    """With strides each element of a kernel meets every second row or column of the image."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 64, (3, 5), stride=(2, 3), padding=(1, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return torch.relu(self.pool(self.conv(x)).flatten(1))

    def inputs(self):
        return [rand(3, 6, 62, 57)]


@case
class VolumeMean(nn.Module):
    """Convolution, batch norm, mean over all places, in three dimensions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 40, 3, stride=(1, 2, 1), padding=(1, 0, 1))
        self.norm = nn.BatchNorm3d(40)

    def forward(self, x):
        return self.norm(self.conv(x)).mean((2, 3, 4))

    def inputs(self):
        return [rand(2, 4, 14, 21, 18)]


@case
class TransposedVolume(nn.Module):
    """A transposed convolution, a factor, batch norm and global average pooling."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(5, 24, 3, stride=2, padding=1, output_padding=(1, 0, 1))
        self.norm = nn.BatchNorm3d(24)
        self.pool = nn.AdaptiveAvgPool3d(1)

    def forward(self, x):
        return self.pool(self.norm(self.conv(x) * 2.0))

    def inputs(self):
        return [rand(2, 5, 7, 12, 9)]


@case
class Signals(nn.Module):
    """Along one axis: groups, a kernel that reaches far, one convolution of two signals."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(24, 96, 5, dilation=2, padding=1, groups=4)
        self.norm = nn.BatchNorm1d(96)
        self.up = nn.ConvTranspose1d(24, 96, 4, stride=2, padding=1, groups=2)

    def forward(self, x, z):
        shared = self.conv(x).sum(-1) - self.conv(z).mean(-1)
        return self.norm(shared), self.up(x).mean((1, 2))

    def inputs(self):
        return [rand(3, 24, 801), rand(3, 24, 640)]


@case
class DepthwisePooling(nn.Module):
    """Each channel by itself, then the mean of each; and with two features a channel, strided."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(40, 40, 5, padding=2, groups=40, bias=False)
        self.wide = nn.Conv2d(40, 80, 3, stride=2, padding=1, groups=40)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x)).flatten(1), self.wide(x).sum((2, 3))

    def inputs(self):
        return [rand(3, 40, 61, 57)]


@case
class NormThenConvolution(nn.Module):
    """In eval mode a batch norm in front, whose shift stays; factors go into the weights."""

    def __init__(self):
        super().__init__()
        self.a, self.m = nn.BatchNorm2d(12), nn.Conv2d(12, 12, 3, stride=2, groups=3)
        self.gain = nn.Parameter(torch.rand(12, 1, 1) + 0.5)
        self.b = nn.Conv2d(12, 8, 3, padding=1, bias=False)
        self.c = nn.ConvTranspose2d(12, 6, 2, stride=2)

    def forward(self, x):
        y = torch.tanh(self.m(self.a(x)))
        return self.b(y * self.gain), torch.relu(self.c(self.gain * y))

    def inputs(self):
        return [rand(3, 12, 41, 37)]


@case
class GroupsOfChannels(nn.Module):
    """Sums of channels of grouped convolutions, along one axis and three; factors of such."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(8, 16, 3, groups=4, padding="same")
        self.b = nn.ConvTranspose3d(6, 12, 2, groups=3, bias=False)
        self.c = nn.ConvTranspose3d(6, 12, 2, stride=2, groups=3)
        self.norm = nn.BatchNorm3d(12)

    def forward(self, x, z):
        return self.a(x).mean(1), self.b(z).sum(1), torch.sigmoid(self.norm(self.c(z)))

    def inputs(self):
        return [rand(3, 8, 300), rand(2, 6, 9, 8, 7)]


@case
class VolumeNorms(nn.Module):
    """What else there is of five axes: norms, softmax, sums and moves behind a convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(6, 6, 3, padding=1)
        self.group, self.each = nn.GroupNorm(2, 6), nn.InstanceNorm3d(6, affine=True)
        self.layer = nn.LayerNorm((3, 4))

    def forward(self, x):
        y = torch.softmax(self.each(self.group(self.conv(x))), 1)
        z = self.layer(x).permute(0, 2, 3, 4, 1).sum((1, 3))
        return y, z, x.transpose(-1, -2) @ x

    def inputs(self):
        return [rand(2, 6, 5, 3, 4)]


@case
class SumsAlongSomePlaces(nn.Module):
    """A mean over the depth and sums over rows leave convolutions along the other places."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(4, 30, 3, stride=(2, 1, 1), padding=(1, 1, 0))
        self.rows = nn.Conv2d(8, 60, (3, 5), stride=(1, 2), padding=(1, 2), groups=2)
        self.bias = nn.Parameter(torch.randn(1, 30, 1, 1, 1))

    def forward(self, x, z):
        y = torch.softmax(self.up(x).mean(2, keepdim=True) + self.bias, 1)
        return y, torch.relu(self.rows(z).sum(3)), self.rows(z).mean((0, 2))

    def inputs(self):
        return [rand(2, 4, 19, 13, 12), rand(3, 8, 33, 45)]


@case
class GatedImages(nn.Module):
    """Factors for each channel of each image in front of sums over channels and places."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 24, 3)
        self.squeeze = nn.Linear(24, 24)

    def forward(self, x, z):
        y = nn.functional.gelu(self.conv(x))
        gate = torch.sigmoid(self.squeeze(y.mean((2, 3))))
        return torch.sigmoid(self.conv(x) * z).mean((1, 2, 3)), (y * gate[:, :, None, None]).amax(1)

    def inputs(self):
        return [rand(3, 5, 27, 31), rand(3, 24, 1, 1)]


@case
class GatedSums(nn.Module):
    """Nothing as large as the convolution's result is written by a kernel."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(5, 12, 2)

    def forward(self, x, z):
        return torch.sigmoid(self.conv(x) * z + 1.0).sum((1, 2, 3, 4))

    def inputs(self):
        return [rand(3, 5, 9, 10, 11), rand(3, 12, 1, 1, 1)]


@case
class PlacesAsTokens(nn.Module):
    """Places that become one axis, and tokens, before they are summed."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 12, 3, padding=1)
        self.head = nn.Linear(12, 7)

    def forward(self, x):
        y = self.conv(x)
        tokens = y.flatten(2).transpose(1, 2)
        return y.view(y.shape[0], 12, -1).mean(-1), self.head(tokens * 2.0).mean(1)

    def inputs(self):
        return [rand(3, 5, 27, 31)]
