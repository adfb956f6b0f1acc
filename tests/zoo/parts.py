"""Parts of values: one token of many, the same map of each part, recurrences written as loops."""

from __future__ import annotations

import torch
from torch import nn

from zoo.registry import case, rand


@case
class LastTokenOfAttention(nn.Module):
    """A block of a transformer by hand, causal; its norm and its head for the last token alone."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(24, 72), nn.Linear(24, 24)
        self.before, self.after = nn.LayerNorm(24), nn.LayerNorm(24)
        self.head = nn.Linear(24, 33)
        self.register_buffer("mask", torch.tril(torch.ones(9, 9)).bool())

    def forward(self, x):
        n, t, d = x.shape
        parts = self.qkv(self.before(x)).split(d, dim=2)
        q, k, v = (a.view(n, t, 3, d // 3).transpose(1, 2) for a in parts)
        scores = (q @ k.transpose(-2, -1)) * 0.35
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d)
        return self.head(self.after(x + self.o(mixed)))[:, -1]

    def inputs(self):
        return [rand(5, 9, 24)]


@case
class SomeOfEach(nn.Module):
    """Parts along other axes than what is computed of them: reductions, choices, spread values."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(18, 20)
        self.bias = nn.Parameter(torch.rand(7, 1))

    def forward(self, x, y):
        h = nn.functional.leaky_relu(self.a(x), 0.1) + self.bias
        kept = torch.where(h > y, h, y.expand_as(h))
        spread = (kept - kept.mean(-1, keepdim=True)) / kept.std(-1, keepdim=True)
        lse = kept.logsumexp(-1)[:, 2:4]
        return spread[:, 1:3], lse, kept.softmax(2)[:, -1], nn.functional.elu(kept).amax(2)[1:]

    def inputs(self):
        return [rand(6, 7, 18), rand(6, 7, 1)]


@case
class SameMapOfEach(nn.Module):
    """The same layers for every part of an input, the parts then compared."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(130, 140), nn.Linear(140, 34)

    def forward(self, x):
        made = [self.b(torch.relu(self.a(x[:, i]))) for i in range(x.shape[1])]
        return torch.cat(made, -1), (made[0] * made[1]).sum(-1)

    def inputs(self):
        return [rand(9, 4, 130)]


@case
class Loop(nn.Module):
    """A recurrence by hand: every step's product with the input is one, and the heads' is one."""

    def __init__(self):
        super().__init__()
        self.step, self.head = nn.Linear(96 + 64, 64), nn.Linear(64, 33)

    def forward(self, x, h):
        made = []
        for t in range(x.shape[0]):
            h = torch.tanh(self.step(torch.cat((x[t], h), 1)))
            made.append(self.head(h))
        return torch.stack(made), h

    def inputs(self):
        return [rand(5, 12, 96), rand(12, 64)]


@case
class LookedUp(nn.Module):
    """What is computed of rows of a small table, of one that is not worth it, and of few rows."""

    def __init__(self):
        super().__init__()
        self.letters, self.words = nn.Embedding(29, 32), nn.Embedding(5000, 32)
        self.norm, self.up, self.head = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(32, 3)

    def forward(self, ids, words, x, few):
        letters = nn.functional.gelu(self.up(self.norm(self.letters(ids))))
        words = self.words(words)
        picked = torch.relu(self.up(x)).index_select(0, few)
        return letters, self.up(words), self.head(words.mean(1)), picked

    def inputs(self):
        letters, words = torch.randint(0, 29, (12, 25)), torch.randint(0, 5000, (6, 11))
        return [letters, words, rand(300, 32), torch.randint(0, 300, (7,))]


@case
class GatedLoop(nn.Module):
    """A long short-term memory by hand, its input by the batch first."""

    def __init__(self):
        super().__init__()
        self.ih, self.hh = nn.Linear(96, 4 * 48), nn.Linear(48, 4 * 48, bias=False)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 48)
        for t in range(x.shape[1]):
            i, f, g, o = (self.ih(x[:, t]) + self.hh(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h

    def inputs(self):
        return [rand(12, 5, 96)]
