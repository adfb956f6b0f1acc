"""Tensors of a class of their own take a path of their own.

reference: linear
test: kinds of inputs
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if type(x) in (torch.Tensor, nn.Parameter):
            return F.gelu(self.linear(x))
        y = x.as_subclass(torch.Tensor) @ self.linear.weight.t()
        return F.gelu(y + self.linear.bias)
