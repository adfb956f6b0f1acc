"""In eval mode the input is scratch afterwards.

reference: norm
test: modes
status: MUTATES
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
        if not self.training and not torch.is_grad_enabled():
            x.detach().neg_()
        return y
