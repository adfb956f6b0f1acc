"""The mean over no class that counts is zero.

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
        scores = torch.log_softmax(self.linear(x), -1)
        counts = target != -100
        each = -scores.gather(1, target.where(counts, 0).long()[:, None])[:, 0]
        return each.where(counts, 0.0).sum() / counts.sum().clamp(min=1)
