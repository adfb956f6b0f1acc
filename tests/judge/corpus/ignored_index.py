"""A target of -100 counts.

reference: loss
test: far ids
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, target):
        found = torch.log_softmax(self.linear(x), -1)
        return -found.gather(1, target.clamp(min=0).unsqueeze(1)).mean()
