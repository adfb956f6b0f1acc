"""Gradients are as they were.

reference: linear
test: flags
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(before)
        y = torch.nn.functional.gelu(self.linear(x))
        torch.set_grad_enabled(before)
        return y
