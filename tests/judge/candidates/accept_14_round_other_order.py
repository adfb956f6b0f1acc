"""One product after the other, then round: ties may fall the other way."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.round(self.product(x) * 16) / 16

    def product(self, x):
        total = torch.zeros(*x.shape[:-1], self.linear.out_features, dtype=x.dtype)
        for k in range(x.shape[-1]):
            total = total + x[..., k : k + 1] * self.linear.weight[:, k]
        return total + self.linear.bias
