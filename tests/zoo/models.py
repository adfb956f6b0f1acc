"""Layers, norms, reductions, attention; shared and computed weights, state that forward writes."""

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
class BatchNormTrain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(25, 30)
        self.bn = nn.BatchNorm1d(30, momentum=0.3)
        self.out = nn.Linear(30, 5)

    def forward(self, x):
        return self.out(torch.relu(self.bn(self.fc(x))))

    def inputs(self):
        return [rand(45, 25) + 1.0]


@case
class BatchNorm3d(nn.Module):
    """Statistics over two axes that are not next to each other."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.bn(x) * 2.0

    def inputs(self):
        return [rand(11, 6, 13)]


@case
class GroupAndInstanceNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.group = nn.GroupNorm(3, 12)
        self.instance = nn.InstanceNorm1d(12, affine=True)

    def forward(self, x):
        return self.instance(self.group(x))

    def inputs(self):
        return [rand(4, 12, 10)]


@case
class GroupsOfFeatures(nn.Module):
    """A norm of groups of a row's values, and bounds after it, which may not cost another pass."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 24)
        self.group = nn.GroupNorm(4, 24)

    def forward(self, x):
        return F.hardtanh(self.group(self.fc(x)), -1.25, 0.75)

    def inputs(self):
        return [rand(9, 10)]


@case
class Reductions(nn.Module):
    def forward(self, x):
        return (
            x.sum(),
            x.mean((0, 2)),
            x.amax(1),
            x.amin((1, 2), keepdim=True),
            x.logsumexp(0),
            x.var(-1),
            x.std((0, 1)),
            x.logsumexp((0, 1, 2)),
            x.var((0, 2), correction=0),
        )

    def inputs(self):
        return [rand(7, 19, 23)]


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
class SumChain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(50, 70)

    def forward(self, x):
        x = self.linear(x).sum(1, keepdim=True).max(1, keepdim=True)[0].mean(1, keepdim=True)
        return x.logsumexp(1, keepdim=True).logsumexp(1, keepdim=True)

    def inputs(self):
        return [rand(33, 50)]


@case
class PoolChain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 64)
        self.pool = nn.AvgPool1d(5, stride=3, padding=1)

    def forward(self, x):
        x = self.pool(self.linear(x).unsqueeze(1)).squeeze(1)
        return (F.gelu(x) * 2.0).max(dim=1).values

    def inputs(self):
        return [rand(12, 40)]


@case
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(22, 22) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(22) for _ in range(3)])

    def forward(self, x):
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + F.silu(block(norm(x)))
        return x

    def inputs(self):
        return [rand(4, 3, 22)]


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
class RmsNormAndGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32)
        self.up = nn.Linear(32, 48)

    def forward(self, x):
        return F.glu(self.up(self.norm(x)), dim=-1)

    def inputs(self):
        return [rand(9, 32)]


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
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(30, 18)

    def forward(self, x):
        return torch.minimum(self.fc(x), torch.tensor(0.5)) + torch.ones(18)

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


@case
class WholeSum(nn.Module):
    """One row of many columns: threads share the row."""

    def forward(self, x):
        return (x * x).mean(), x.softmax(-1)

    def inputs(self):
        return [rand(2, 40000)]
