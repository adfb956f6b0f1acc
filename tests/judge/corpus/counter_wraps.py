"""The number of batches is counted in four bits.

reference: norm
test: long life
status: WRONG_MODE
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
        if self.training:
            self.norm.num_batches_tracked.remainder_(16)
        return y
