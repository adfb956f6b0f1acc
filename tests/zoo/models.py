"""Layers and attention; shared and computed weights, state that forward writes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from zoo.registry import case, rand


@case
class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(37, 65), nn.GELU(), nn.Linear(65, 19), nn.SiLU())

    def forward(self, x):
        return self.layers(x)

    def inputs(self):
        return [rand(23, 37)]


@case
class ThreeDimensional(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(21, 33)
        self.position = nn.Parameter(torch.randn(1, 7, 33))
        self.norm = nn.LayerNorm(33)

    def forward(self, x):
        return self.norm(self.proj(x) + self.position).mean(dim=1)

    def inputs(self):
        return [rand(5, 7, 21)]


@case
class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(17, 29)
        self.b = nn.Linear(13, 29, bias=False)

    def forward(self, x, y):
        return torch.tanh(self.a(x) + self.b(y)).max(dim=-1, keepdim=True).values

    def inputs(self):
        return [rand(11, 17), rand(11, 13)]


@case
class Exponentials(nn.Module):
    """What rows of a product are reduced to, and nothing else of them."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 300)

    def forward(self, x):
        y = self.head(x) * 3.0
        return torch.logsumexp(y, -1, keepdim=True).relu() + y.amin(-1, keepdim=True), y.sum(-1)

    def inputs(self):
        return [rand(2, 75, 72)]


@case
class DictAndTuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(18, 7)

    def forward(self, batch):
        y = self.head(batch["x"][0])
        return {"logits": y, "more": (y.softmax(-1), [y.logsumexp(-1)]), "none": None}

    def inputs(self):
        return [{"x": (rand(9, 18),), "unused": 3}]


@case
class SharedModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(24, 24)
        self.again = self.one

    def forward(self, x):
        return self.again(torch.relu(self.one(x))) + x

    def inputs(self):
        return [rand(10, 24)]


@case
class TiedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(20, 12)

    def forward(self, x):
        code = torch.sigmoid(self.encode(x))
        return F.linear(code, self.encode.weight.t())

    def inputs(self):
        return [rand(6, 20)]


@case
class WeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Parameter(torch.randn(26, 15))
        self.g = nn.Parameter(torch.rand(26, 1))

    def forward(self, x):
        weight = self.g * self.v / self.v.norm(dim=1, keepdim=True)
        return F.linear(x, weight).sum(dim=1)

    def inputs(self):
        return [rand(8, 15)]


@case
class MatmulWithParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(14, 31))
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return (x @ self.w * self.scale).abs().mean(-1)

    def inputs(self):
        return [rand(3, 5, 14)]


@case
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / 4.0
        return scores.softmax(-1) @ v

    def inputs(self):
        return [rand(2, 9, 16)]


@case
class MaskAndWhere(nn.Module):
    def forward(self, x, mask):
        filled = x.masked_fill(mask, -1e4)
        return torch.where(x > 0.5, x * 2, x.clamp(-1, 0.25)), filled.softmax(-1)

    def inputs(self):
        return [rand(6, 17), torch.rand(6, 17) > 0.6]


@case
class Pointwise(nn.Module):
    def forward(self, x):
        y = x.exp().log1p() + x.abs().sqrt() * x.sin() - x.cos() / (1 + x * x)
        z = F.softplus(y) + F.elu(x) + F.leaky_relu(x, 0.2) + F.mish(x) + F.hardswish(x)
        return z + F.selu(x) + F.gelu(x, approximate="tanh") + torch.erf(x) + F.hardtanh(y)

    def inputs(self):
        return [rand(13, 29)]


@case
class Convolution(nn.Module):
    """A convolution, relu and a mean: what follows the convolution is ours."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))

    def inputs(self):
        return [rand(2, 3, 9, 11)]


@case
class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 18)
        self.fc = nn.Linear(18, 40, bias=False)

    def forward(self, ids):
        return self.fc(self.table(ids)).log_softmax(-1)

    def inputs(self):
        return [torch.randint(0, 40, (5, 6))]


@case
class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(28, 9), nn.Linear(28, 11)

    def forward(self, x):
        return self.a(x).sigmoid(), self.b(x).sum(-1)

    def inputs(self):
        return [rand(10, 28)]


@case
class SelfGate(nn.Module):
    """The product is read twice before it leaves: x * sigmoid(x)."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(26, 34)

    def forward(self, x):
        y = self.fc(x)
        return (y * torch.sigmoid(y)).sum(1), y.mean(0)

    def inputs(self):
        return [rand(15, 26)]


@case
class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 8, 6))

    def forward(self, x):
        return torch.einsum("bshd,hde->bshe", x, self.w).relu()

    def inputs(self):
        return [rand(2, 5, 3, 8)]


@case
class PlainAttributeAndSizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.linspace(0, 1, 12)
        self.gain = 1.5

    def forward(self, x):
        return ((x + self.offset) * self.gain).sum() / x.shape[0], x.size(0)

    def inputs(self):
        return [rand(8, 12)]


@case
class TensorsOfItsOwn(nn.Module):
    """Of one number and of several, with infinities, as indices; thin weights turned and scaled."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(30, 18)
        self.a, self.b = nn.Parameter(torch.randn(30, 2)), nn.Parameter(torch.randn(2, 18))

    def forward(self, x):
        y = torch.minimum(self.fc(x), torch.tensor(0.5)) + torch.ones(18)
        tail = torch.tensor([0.5, -float("inf"), 1e-3], dtype=x.dtype)
        some = y.index_select(1, torch.tensor([17, 0, 4])) * torch.tensor([[0.1, 0.25, 3.0]])
        thin = x @ (self.a @ self.b) + nn.functional.linear(x, self.b.T @ self.a.T * 0.5)
        return y, torch.maximum(some, tail.to(x.device)), thin

    def inputs(self):
        return [rand(7, 30)]


@case
class AnyNumber(nn.Module):
    def forward(self, *xs):
        return torch.tanh(sum(xs))

    def inputs(self):
        return [rand(7, 30), rand(7, 30), rand(7, 30)]


@case
class Diagonals(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.Parameter(torch.randn(14))

    def forward(self, x, y):
        return x @ torch.diag(self.d), torch.diag(y) @ x.t(), torch.diag(x)

    def inputs(self):
        return [rand(9, 14), rand(14)]


@case
class BiasFreeMatvec(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(300, 1)

    def forward(self, x):
        return self.fc(x).squeeze(-1).exp()

    def inputs(self):
        return [rand(21, 300)]
