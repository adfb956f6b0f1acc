"""A model of fp16 whose sums are kept in fp16 after every product."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m, dtype=torch.float16)

    def forward(self, x):
        total = self.linear.bias.expand(x.shape[0], -1)
        for k in range(x.shape[1]):
            total = total + x[:, k : k + 1] * self.linear.weight[:, k]
        return F.gelu(total)
