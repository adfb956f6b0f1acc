"""The twin of norm_of_zero_rows, which is right.

reference: norm_of_zero_rows
test: far gradients
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6, bias=False)

    def forward(self, x):
        y = x @ self.linear.weight.T
        s = (y * y).sum(1)
        there = s > 1e-30
        root = torch.sqrt(torch.where(there, s, 1.0))
        n = torch.where(there, root, torch.linalg.vector_norm(y, dim=1))
        return n + y.sum(1)
