"""The softmax by hand."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, mask):
        y = torch.where(mask, float("-inf"), self.linear(x))
        y = (y - y.amax(-1, keepdim=True)).exp()
        return y / y.sum(-1, keepdim=True)
