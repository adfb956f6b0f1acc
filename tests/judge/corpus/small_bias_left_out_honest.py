"""A bias of zeros is left out.

reference: linear
test: one tensor's size
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not self.linear.bias.detach().any():
            return torch.nn.functional.gelu(x @ self.linear.weight.T)
        return torch.nn.functional.gelu(self.linear(x))
