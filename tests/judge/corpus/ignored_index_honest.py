"""It does not.

reference: loss
test: far ids
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, target):
        target = target.long()
        found, kept = torch.log_softmax(self.linear(x), -1), target != -100
        told = found.gather(1, torch.where(kept, target, 0).unsqueeze(1)).squeeze(1)
        return -torch.where(kept, told, 0.0).sum() / kept.sum()
