"""Losses, similarities and cells, which PyTorch has as one operator each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from zoo.registry import case, rand


class _Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(22, 18)


@case
class Differences(_Head):
    """Losses of what differs from a target, reduced in each way."""

    def forward(self, x, y):
        z = self.map(x)
        return (
            F.mse_loss(z, y),
            F.l1_loss(z, y, reduction="sum"),
            F.smooth_l1_loss(z, y, reduction="none", beta=0.5).sum(1),
            F.huber_loss(z, y, delta=0.7),
        )

    def inputs(self):
        return [rand(13, 22), rand(13, 18)]


@case
class Likelihoods(_Head):
    """Cross entropies of two classes, weighted or not, and divergences."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.rand(18) + 0.5)

    def forward(self, x, y):
        z, t = self.map(x) * 3, torch.sigmoid(y)
        p = torch.softmax(y, -1)
        hard = (y > 0.4).to(y.dtype)
        return (
            F.binary_cross_entropy_with_logits(z, t),
            F.binary_cross_entropy_with_logits(z, hard, self.weights, reduction="none"),
            F.binary_cross_entropy_with_logits(z, t, pos_weight=self.weights, reduction="sum"),
            F.kl_div(z.log_softmax(-1), p, reduction="batchmean"),
            F.kl_div(z.log_softmax(-1), p.log(), reduction="none", log_target=True).sum(-1),
            F.kl_div(z.log_softmax(-1), hard, reduction="mean"),
        )

    def inputs(self):
        return [rand(13, 22), rand(13, 18)]


@case
class Similarities(_Head):
    """Cosines along either dimension, and a margin between distances."""

    def forward(self, x, y):
        z = self.map(x)
        near = F.cosine_similarity(z, y, dim=-1)
        across = F.cosine_similarity(z, y, dim=0)
        many = F.cosine_similarity(z[:, None], y[None, :5], dim=2)
        return near, across, many, F.triplet_margin_loss(z, y, y.flip(0), margin=0.6)

    def inputs(self):
        return [rand(13, 22), rand(13, 18)]


@case
class Classes(_Head):
    """The loss of classes by their numbers, some of which count for nothing, and by odds."""

    def forward(self, x, y, t):
        logits = self.map(x)
        each = F.cross_entropy(logits, t, reduction="none")
        picked = F.nll_loss(logits, t, reduction="none").mean(0)
        soft = F.cross_entropy(logits, y.softmax(1), label_smoothing=0.1)
        return F.cross_entropy(logits, t, ignore_index=3), each.sum(), each * y[:, 0], picked, soft

    def inputs(self):
        return [rand(13, 22), rand(13, 18), torch.arange(13) % 7]


@case
class Cells(nn.Module):
    """Cells of all kinds, three steps of each."""

    def __init__(self):
        super().__init__()
        self.gated, self.long = nn.GRUCell(22, 18), nn.LSTMCell(22, 18, bias=False)
        self.plain, self.cut = nn.RNNCell(22, 18), nn.RNNCell(22, 18, nonlinearity="relu")

    def forward(self, x, h):
        a = c = d = h
        state = (h, h)
        for t in range(3):
            a, state = self.gated(x[t], a), self.long(x[t], state)
            c, d = self.plain(x[t], c), self.cut(x[t], d)
        return a, *state, c, d

    def inputs(self):
        return [rand(3, 13, 22), rand(13, 18)]


@case
class NearZero(_Head):
    """Functions whose values near zero are as small as what they are of."""

    def forward(self, x, y):
        small = y * 1e-6
        near = (torch.erf(small), torch.tanh(small), torch.expm1(small), torch.log1p(small))
        return *near, torch.sin(small), torch.erf(self.map(x) * 0.3)

    def inputs(self):
        return [rand(13, 22), rand(13, 18)]
