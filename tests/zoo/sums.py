"""Sums of several values, linear maps among them."""

from __future__ import annotations

import torch
from torch import nn

from zoo.registry import case, rand


class _Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(26, 24) for _ in range(3))


@case
class TwoInputsScaled(_Maps):
    """Each input's product shrinks to one with a vector."""

    def forward(self, x, y):
        return (self.a(x) * 2 + self.b(y) / 3).sum(1, keepdim=True)

    def inputs(self):
        return [rand(11, 26), rand(11, 26)]


@case
class OneMapOfTwoInputs(_Maps):
    """The map of the inputs' sum."""

    def forward(self, x, y):
        return torch.relu(self.a(x) + self.a(y))

    def inputs(self):
        return [rand(11, 26), rand(11, 26)]


@case
class MeanOfResidual(nn.Module):
    """The mean over the tokens of what a block adds to its input."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(48, 160), nn.Linear(160, 48)

    def forward(self, x):
        return (x + self.down(torch.relu(self.up(x)))).mean(1)

    def inputs(self):
        return [rand(8, 35, 48)]


@case
class MeanOfStacked(_Maps):
    """An ensemble: three maps of one input are one."""

    def forward(self, x):
        y = torch.stack([self.a(x), self.b(x), self.c(x)])
        return y.mean(0), y.amax(0)

    def inputs(self):
        return [rand(11, 26)]


@case
class MeanOfJoined(_Maps):
    """Three maps side by side, whose mean is asked for, and a part."""

    def forward(self, x):
        y = torch.cat([self.a(x), self.b(x), self.c(x)], 1)
        return y.mean(1), y[:, 30:40]

    def inputs(self):
        return [rand(11, 26)]


@case
class RowsInPieces(_Maps):
    """Means of pieces, and their mean."""

    def forward(self, x):
        y = self.a(x).view(-1, 4, 6)
        return y.mean(1).mean(1), y.amax((1, 2))

    def inputs(self):
        return [rand(11, 26)]


@case
class LastToken(nn.Module):
    """What the head makes of the last token, and of the last two, of sequences of any length."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(26, 40), nn.Linear(40, 33)

    def forward(self, x):
        y = self.head(torch.relu(self.up(x)))
        return y[:, -1], y[:, -2:].sum(1)

    def inputs(self):
        return [rand(5, 9, 26)]


@case
class ClassToken(nn.Module):
    """A block whose first token alone is asked for, behind norms."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(26), nn.RMSNorm(26)
        self.up, self.down, self.head = nn.Linear(26, 90), nn.Linear(90, 26), nn.Linear(26, 11)

    def forward(self, x):
        x = x + self.down(torch.nn.functional.gelu(self.up(self.before(x))))
        return torch.log_softmax(self.head(self.after(x)), -1)[:, 0]

    def inputs(self):
        return [rand(6, 50, 26)]


@case
class MeanOfAttention(nn.Module):
    """Attention arranges its tokens in the rows of a matrix and back; the mean comes first."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))

    def inputs(self):
        return [rand(6, 50, 32)]


@case
class WeightedMeans(_Maps):
    """Means over the tokens that a mask keeps, and by attention's weights."""

    def forward(self, x):
        keep = (x[..., :1] > 0).float()
        weights = torch.softmax(self.c(x)[..., :1], 1)
        return (self.a(x) * keep).sum(1) / (keep.sum(1) + 1), (weights * self.b(x)).sum(1)

    def inputs(self):
        return [rand(5, 9, 26)]


@case
class SharedContext(_Maps):
    """One row for all tokens of a sequence, beside each."""

    def forward(self, x):
        context = x.mean(1, keepdim=True).expand(-1, x.shape[1], -1)
        return torch.relu(self.a(x) + self.b(context)), self.c(context)

    def inputs(self):
        return [rand(5, 9, 26)]


@case
class PooledByAttention(nn.Module):
    """A softmax along what stands before an axis of one element weighs values, whose bias is then
    added whole. Two scores of the same tokens are computed in one pass."""

    def __init__(self):
        super().__init__()
        self.score, self.gate, self.value = nn.Linear(26, 1), nn.Linear(26, 1), nn.Linear(26, 24)

    def forward(self, x):
        weights = torch.softmax(self.score(x), dim=1)
        gate = torch.sigmoid(self.gate(x)).squeeze(-1)
        return (weights * self.value(x)).sum(1), gate, torch.log_softmax(self.gate(x), -2)

    def inputs(self):
        return [rand(5, 9, 26)]
