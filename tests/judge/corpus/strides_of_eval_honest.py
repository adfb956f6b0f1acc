"""The twin of strides_of_eval, which is right.

reference: norm
test: modes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        return y if self.training or y.dim() != 2 else y.t().contiguous().t().contiguous()
