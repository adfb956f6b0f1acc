"""Models whose groups are rows or columns; every size that they allow is free.

A body is compiled once and run at many sizes: inputs here only fix ranks and which sizes agree.
Inputs called `positive...` are drawn positive.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

MODELS: dict[str, type[nn.Module]] = {}


def model(cls: type[nn.Module]) -> type[nn.Module]:
    MODELS[cls.__name__] = cls
    return cls


# what is run in float16, bfloat16 and float64, too: every kind of operand, monoid and result
BY_DTYPE = ("Affine", "Mixed", "Softmax", "LayerNorm", "RowExtremes", "Moments", "ColumnsOfSlices")


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


@model
class Copy(nn.Module):
    """The least that a pointwise kernel can do."""

    def forward(self, x):
        return x * 2.0

    def inputs(self):
        return [rand(6, 11)]


@model
class Flat(nn.Module):
    def forward(self, x, y, z):
        return F.gelu(x + y) * z, torch.tanh(x)

    def inputs(self):
        return [rand(6, 11), rand(6, 11), rand(6, 11)]


@model
class Affine(nn.Module):
    """A number a column, a number a row, one number: the second pass of a normalisation."""

    def forward(self, x, mean, scale, bias, row, one):
        return (x - mean) * scale + bias, x * row + one

    def inputs(self):
        return [rand(6, 11), rand(11), rand(11), rand(11), rand(6, 1), rand(1)]


@model
class Mixed(nn.Module):
    """Operands broadcast along some of the axes."""

    def forward(self, x, channel, plane, line):
        return F.silu(x * channel + plane) * line

    def inputs(self):
        return [rand(2, 3, 5, 7), rand(3, 1, 1), rand(2, 1, 5, 7), rand(5, 1)]


@model
class Functions(nn.Module):
    """Every function that bodies call."""

    def forward(self, x, y, positive):
        a = x.exp() + x.expm1() * y.sin() - y.cos() + positive.log() + positive.log1p()
        b = positive.sqrt() * positive.rsqrt() / (1.5 + x.erf()) + x.abs() + x.floor() + y.ceil()
        c = torch.where(x > y, x.trunc(), y.round()) + torch.maximum(x, y) * torch.minimum(x, y)
        d = F.softplus(x) + F.elu(y) + F.leaky_relu(x) + F.mish(y) + F.hardswish(x) + F.selu(y)
        e = positive.pow(y) + F.relu(x) + torch.sigmoid(y) + F.gelu(x, approximate="tanh")
        f = torch.where(x <= 0.5, 1.0, y) + torch.where(y == x, x, -2.0) + 1.0 / positive
        return a + b, c + d, e + f

    def inputs(self):
        return [rand(6, 11), rand(6, 11), rand(6, 11).abs() + 0.5]


@model
class Matvec(nn.Module):
    def forward(self, x, v, one):
        return (x * v).sum(-1) + one

    def inputs(self):
        return [rand(6, 11), rand(11), rand(1)]


@model
class Softmax(nn.Module):
    def forward(self, x):
        return x.softmax(-1)

    def inputs(self):
        return [rand(6, 11)]


@model
class ScaledSoftmax(nn.Module):
    """The largest value of what is computed twice, and large: one element of a row is nearly 1."""

    def forward(self, x, row):
        return (x * 140.0).softmax(-1), (x * row).logsumexp(-1)

    def inputs(self):
        return [rand(6, 11), rand(6, 1)]


@model
class SoftmaxGiven(nn.Module):
    """A softmax's last steps where the row's largest value is known."""

    def forward(self, x, top):
        e = (x - top).exp()
        return e / e.sum(-1, keepdim=True)

    def inputs(self):
        return [rand(6, 11), rand(6, 1)]


@model
class LayerNorm(nn.Module):
    def forward(self, x, weight, bias):
        mean = x.mean(-1, keepdim=True)
        d = x - mean
        var = (d * d).mean(-1, keepdim=True)
        return d * (var + 1e-5).rsqrt() * weight + bias

    def inputs(self):
        return [rand(6, 11), rand(11), rand(11)]


@model
class RowExtremes(nn.Module):
    """Results of one a row alone, of several monoids."""

    def forward(self, x, row):
        return x.amax(-1), x.amin(-1) * 2.0, (x * row).sum(-1), x.logsumexp(-1)

    def inputs(self):
        return [rand(6, 11), rand(6, 1)]


@model
class LongSoftmax(Softmax):
    """Rows that are not held: the largest value and the sum in one pass."""

    def inputs(self):
        return [rand(6, 32800)]


@model
class LongScaledSoftmax(ScaledSoftmax):
    def inputs(self):
        return [rand(6, 32800), rand(6, 1)]


@model
class LongLayerNorm(LayerNorm):
    def inputs(self):
        return [rand(6, 32800), rand(32800), rand(32800)]


@model
class LongLogSumExp(nn.Module):
    """Two statistics of one pass beside a third, of what follows from an operand of the row."""

    def forward(self, x, row):
        y = x * row
        return y.logsumexp(-1), y.var(-1), y.amin(-1)

    def inputs(self):
        return [rand(6, 32800), rand(6, 1)]


@model
class Masked(nn.Module):
    """Masks as every kind of operand: as large as the space, one a column, one a row."""

    def forward(self, x, mask, keep, row):
        y = torch.where(mask, x, -1.0) * keep
        return y.masked_fill(row, 0.5), y.sum(-1)

    def inputs(self):
        return [rand(6, 11), *(rand(*s) > 0 for s in ((6, 11), (11,), (6, 1)))]


@model
class MaskedSums(nn.Module):
    def forward(self, x, mask, keep):
        return (x * mask * keep).sum(0), torch.where(mask, x, 3.0).amax(0)

    def inputs(self):
        return [rand(6, 11), rand(6, 11) > 0, rand(11) > 0]


@model
class Moments(nn.Module):
    def forward(self, x):
        return x.mean(0), x.var(0), x.var(0, correction=0)

    def inputs(self):
        return [rand(6, 11)]


@model
class ColumnSums(nn.Module):
    def forward(self, x, row):
        return (x * row).sum(0), x.sum(0)

    def inputs(self):
        return [rand(6, 11), rand(6, 1)]


@model
class ColumnsOfSlices(nn.Module):
    """Reductions inside each outer slice."""

    def forward(self, x):
        return x.mean(1), x.amax(1), x.amin(1), x.var(1)

    def inputs(self):
        return [rand(3, 6, 11)]
