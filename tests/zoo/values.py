"""What several inputs make: products of two values, and values that are reduced in other shapes.

Some are as large as it takes that a GPU's kernels, and not a library, compute them.
"""

from __future__ import annotations

import torch
from torch import nn

from zoo.registry import case, rand


@case
class Scores(nn.Module):
    """A batch of products, with what follows them and a mask that is broadcast."""

    def forward(self, q, k, mask):
        scores = (q @ k.transpose(-1, -2)) * 0.125 + mask
        return scores.softmax(-1), scores.sum(-1)

    def inputs(self):
        return [rand(6, 4, 500, 64), rand(6, 4, 612, 64), rand(6, 1, 1, 612)]


@case
class OtherWayRound(nn.Module):
    """Both sides of a product lie the other way round, of one and of a batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factors", torch.tensor([1.0, -2.0, 0.5]).view(3, 1, 1))

    def forward(self, a, b):
        return a.T @ b, (a[None] * self.factors).mT @ (b[None] - self.factors)

    def inputs(self):
        return [rand(515, 900), rand(515, 770)]


@case
class CountedMasks(nn.Module):
    """Comparisons that are multiplied and added as numbers, one of them a result, too."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(48, 48)

    def forward(self, x, noise):
        y = self.fc(x)
        kept = noise > 0.3
        return y * (y > 0).float() * kept + (x < 0.5).to(y.dtype), kept

    def inputs(self):
        return [rand(70, 48), torch.rand(70, 48)]


@case
class OneSquare(nn.Module):
    """A value times itself, one side as it lies and one the other way round."""

    def forward(self, x):
        return x @ x + x, x.T @ x

    def inputs(self):
        return [rand(130, 130)]


@case
class ReducedInOtherShapes(nn.Module):
    """Reductions with several axes behind them, and of what is reshaped before."""

    def forward(self, x, y):
        z = x * 2.0 + y
        flat = (y * y).reshape(x.shape[0], -1)
        return (
            *(z.mean((1, 2)), (x * x).amax(1), (y - 1.0).exp().sum((0, 1)), x.var(1)),
            *(torch.logsumexp(y, 1), (x + y).sum((0, 2)), flat.sum(1), flat.amax(1)),
        )

    def inputs(self):
        return [rand(3, 4, 5, 6, 2), rand(3, 4, 5, 6, 2)]


@case
class LongRows(nn.Module):
    """Rows that no block of a GPU holds."""

    def forward(self, x, y, z):
        spread = (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True)
        return (x * 2.0).softmax(-1), (y + 1.0).logsumexp(-1), spread

    def inputs(self):
        return [rand(5, 8211), rand(5, 32796), rand(4, 8213)]


@case
class FarFromZero(nn.Module):
    """Values whose exponential is no float any more."""

    def forward(self, x):
        functions = nn.functional
        return functions.logsigmoid(x), functions.softplus(x), functions.mish(x), functions.silu(x)

    def inputs(self):
        return [rand(5, 41) * 60.0]
