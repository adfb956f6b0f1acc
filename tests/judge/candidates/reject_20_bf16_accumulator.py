"""Partial sums kept in bf16."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        total = torch.zeros(x.shape[0], self.linear.out_features, dtype=torch.bfloat16)
        for xs, ws in zip(x.split(32, 1), self.linear.weight.split(32, 1), strict=True):
            total = total + (xs @ ws.t()).bfloat16()
        return F.gelu(total.float() + self.linear.bias)
