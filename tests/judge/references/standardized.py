"""A linear layer whose weights are standardized, row by row."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(20, 48) / 5)

    def forward(self, x):
        mean, var = self.weight.mean(1, keepdim=True), self.weight.var(1, keepdim=True)
        return F.linear(x, (self.weight - mean) * torch.rsqrt(var + 1e-5))


def get_inputs():
    return [torch.randn(12, 48)]
