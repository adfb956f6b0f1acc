"""A target that is detached gets gradients.

reference: target_learns
test: optimizer loop
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Linear(20, 12)
        self.head = nn.Linear(12, 12)

    def forward(self, a, b):
        y, z = self.online(torch.cat([a, b])).split([a.shape[0], b.shape[0]])
        p = self.head(y)
        z = z
        return -(F.normalize(p, dim=1, eps=1e-8) * F.normalize(z, dim=1, eps=1e-8)).sum(1).mean()
