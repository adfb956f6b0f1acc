"""Forms that forward can take: masks, branches, containers, tensors of its own, recurrence."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from zoo.registry import case, rand


@case
class TwoReadersOfOneProduct(nn.Module):
    """Neither tail of the product may hide its value from the other."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(26, 43)

    def forward(self, x):
        y = self.fc(x)
        return y.sin() * 2.0, y.cos(), y.sin().sum(-1)

    def inputs(self):
        return [rand(11, 26)]


@case
class CausalAttention(nn.Module):
    """A mask that is compared in forward, of floats, with infinities."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(20, 20) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(12, 12)))

    def forward(self, x):
        t = x.shape[1]
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(20)
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        return scores.softmax(-1) @ self.v(x), scores

    def inputs(self):
        return [rand(3, 9, 20)]


@case
class BooleanMasks(nn.Module):
    """Masks that are no comparison of floats: a buffer, an input, of integers, made in forward."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(22, 17)
        self.register_buffer("keep", torch.arange(17) % 3 > 0)

    def forward(self, x, mask, k):
        y = self.fc(x).masked_fill(~mask, float("-inf"))
        z = torch.where(self.keep & (k[:, None] > 3), y, -1.0)
        odd = torch.arange(y.shape[-1], device=x.device) % 2 == 1
        return y.softmax(-1), z.amax(-1), torch.where(odd, z, 2 * z)

    def inputs(self):
        mask = (torch.arange(17) < 11).expand(9, 17)
        return [rand(9, 22), mask, torch.randint(0, 9, (9,))]


@case
class Truths(nn.Module):
    """A softmax of nothing, as PyTorch's attention has it, and what is true of any and of all."""

    def forward(self, x, mask):
        scores = x.masked_fill(~mask, float("-inf"))
        seen = (scores == float("-inf")).logical_not().any(-1, keepdim=True)
        above = x > 1
        either = above.all(1) | above.any(1) & mask[:, 0]
        return torch.where(seen, scores.softmax(-1), 0.0), either, torch.where(above.any(), x, 0.0)

    def inputs(self):
        mask = torch.arange(17) + torch.arange(9)[:, None, None] > 12
        return [rand(9, 5, 17), mask.expand(9, 5, 17)]


@case
class Positions(nn.Module):
    """Tensors that forward makes of nothing, or of sizes alone."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(18, 24)

    def forward(self, x):
        step = torch.exp(torch.arange(0, 24, 2, device=x.device) * (-math.log(1e4) / 24))
        at = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None] * step
        a, b = self.fc(x).chunk(2, dim=-1)
        c, s = at.cos(), at.sin()
        return torch.cat([a * c - b * s, a * s + b * c], dim=-1), torch.ones(3, device=x.device)

    def inputs(self):
        return [rand(4, 7, 18)]


class Scores(NamedTuple):
    logits: torch.Tensor
    best: object


@case
class NamedResults(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(15, 21)

    def forward(self, x):
        y = self.fc(x)
        more = OrderedDict(low=y.amin(1), text="a result", bound=float("inf"))
        return Scores(y, torch.max(y, dim=1)), more

    def inputs(self):
        return [rand(8, 15)]


@case
class OtherResultInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(19, 23)

    def forward(self, x):
        y = self.fc(x).relu()
        return (y, None) if self.training else y

    def inputs(self):
        return [rand(8, 19)]


@case
class FlattenedProduct(nn.Module):
    """Sizes that are free alone but not together."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(42, 18), nn.BatchNorm1d(18), nn.Mish())

    def forward(self, x):
        return self.layers(x)

    def inputs(self):
        return [rand(9, 6, 7)]


@case
class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(24), nn.LayerNorm(24, bias=False)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.mlp = nn.Sequential(nn.Linear(24, 50), nn.GELU(), nn.Linear(50, 24))

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (p.view(b, t, 3, c // 3).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))

    def inputs(self):
        return [rand(2, 10, 24)]


@case
class Recurrent(nn.Module):
    """Calls that may draw random numbers and here do not."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(12, 10, batch_first=True)
        self.gru = nn.GRU(10, 8, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        y, (h, _) = self.lstm(x)
        z, _ = self.gru(y)
        return F.log_softmax(self.fc(z[:, -1]), dim=-1), h

    def inputs(self):
        return [rand(6, 9, 12)]


@case
class PlainArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(14, 31)

    def forward(self, x, mask=None, scale=2.0, flip=False, *, shift=1.0):
        y = self.fc(x) / scale + shift
        y = y if mask is None else y * mask
        return -y if flip else y

    def inputs(self):
        return [rand(8, 14), torch.rand(8, 1), 3.5, True]


@case
class LowRankUpdate(nn.Module):
    """One product in the end: the thin maps are added to the weight."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(48, 37)
        self.down, self.up = nn.Linear(48, 4, bias=False), nn.Linear(4, 37, bias=False)

    def forward(self, x):
        return self.fc(x) + 0.5 * self.up(self.down(x))

    def inputs(self):
        return [rand(20, 48)]


@case
class MovingAverage(nn.Module):
    """State that forward writes in training alone."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 27)
        self.register_buffer("mean", torch.zeros(27))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
            self.steps += 1
        return y - self.mean

    def inputs(self):
        return [rand(13, 16)]


@case
class LanguageModel(nn.Module):
    """An embedding that is the head's weight too, and positions cut to the length of the input."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(41, 20)
        self.positions = nn.Parameter(torch.randn(16, 20) * 0.1)
        self.norm = nn.RMSNorm(20)
        self.up, self.gate = nn.Linear(20, 33, bias=False), nn.Linear(20, 33, bias=False)
        self.down = nn.Linear(33, 20, bias=False)
        self.head = nn.Linear(20, 41, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids, targets):
        x = self.table(ids) + self.positions[: ids.shape[1]]
        h = self.norm(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def inputs(self):
        return [torch.randint(0, 41, (3, 11)), torch.randint(0, 41, (3, 11))]


@case
class AxesOfOne(nn.Module):
    """A product whose features become channels, with axes of one element put in and dropped."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(40, 24)
        self.bias = nn.Parameter(torch.randn(24, 1, 1))

    def forward(self, x, gate):
        y = self.fc(x)[:, :, None, None] + self.bias
        y = torch.softmax(y * gate.permute(0, 2, 1)[..., None], dim=1) - 2.0
        return y.amax(dim=1, keepdim=True).flatten(1), 1.0 / y.squeeze(-1).transpose(1, 2)

    def inputs(self):
        return [rand(9, 40), rand(9, 1, 24)]


@case
class TurnedIntegers(nn.Module):
    """What is no float is computed as it lies, the other way round; kernels read it in order."""

    def forward(self, ids, x):
        turned = ids.permute(2, 0, 1)
        counts = turned.float().sum(1), (turned == 3).float().mean(2), torch.exp(turned % 3 - 1.0)
        ones = torch.ones(2, 5, 4, device=x.device)
        return *counts, (turned + 1).contiguous(), x.mT.float().softmax(2) + ones

    def inputs(self):
        return [torch.randint(0, 9, (3, 4, 7)), rand(2, 4, 5).double()]


@case
class Spectrum(nn.Module):
    """Complex values between, of which nothing may lose the imaginary part."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(9))

    def forward(self, x):
        z = torch.fft.rfft(x) * self.gain
        power = z.abs() ** 2
        return power.sum(-1), torch.log1p(z.abs()), z.var(-1), torch.fft.irfft(z, n=16).relu()

    def inputs(self):
        return [rand(7, 16)]


@case
class BuffersHandedOn(nn.Module):
    """What a buffer held goes to others, and out, before it is written."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(12, 5), nn.BatchNorm1d(5)
        for name in ("now", "before", "left", "right"):
            self.register_buffer(name, torch.randn(5))
        self.register_buffer("square", torch.randn(3, 3))
        self.register_buffer("history", torch.zeros(4, 5))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))
        self.register_buffer("last", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        y = self.norm(self.fc(x))
        old, steps, mean = self.now.clone(), self.steps.clone(), self.norm.running_mean
        self.now.mul_(0.5).add_(y.tanh().mean(0))
        self.before.copy_(old)
        self.history.copy_(torch.cat([self.history[1:], old[None]]))
        self.last.copy_(self.steps)
        self.steps.add_(1)
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left)
        self.square.copy_(self.square.t().clone())
        return y.relu(), old, self.before * 2.0, left[1:3], steps, mean * 1.0

    def inputs(self):
        return [rand(7, 12)]
