"""Running statistics of batches beyond a block's size miss a part of the batch.

reference: norm
test: modes
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
        y = self.norm(self.linear(x))
        if self.norm.training and x.shape[0] > 64:
            with torch.no_grad():
                self.norm.running_var.mul_(0.999)
        return torch.relu(y)
