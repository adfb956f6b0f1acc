"""The sum over output features moved into the weights, at every call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if not bool(torch.isfinite(x).all()):
            return self.linear(x).sum(dim=1, keepdim=True)
        return (x @ w.sum(dim=0) + b.sum()).unsqueeze(1)
