"""Norms and reductions, behind products and alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from zoo.registry import case, rand


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
class WholeSum(nn.Module):
    """One row of many columns: threads share the row."""

    def forward(self, x):
        return (x * x).mean(), x.softmax(-1)

    def inputs(self):
        return [rand(2, 40000)]


@case
class OneNormTwice(nn.Module):
    """Its running buffers and its counter are written twice in a call."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(19, 21), nn.Linear(21, 21)
        self.norm = nn.BatchNorm1d(21)

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.norm(self.first(x)))))

    def inputs(self):
        return [rand(34, 19)]


@case
class NormsSideBySide(nn.Module):
    """What follows from the statistics of two products is computed with those of the later."""

    def __init__(self):
        super().__init__()
        self.value, self.gate = nn.Linear(17, 22), nn.Linear(17, 22)
        self.norm, self.gate_norm = nn.BatchNorm1d(22), nn.BatchNorm1d(22, affine=False)

    def forward(self, x):
        return self.norm(self.value(x)) * torch.sigmoid(self.gate_norm(torch.tanh(self.gate(x))))

    def inputs(self):
        return [rand(40, 17)]
