"""The twin of distances_clamped_aside, which is right.

reference: distances_clamped_aside
test: batches with gradients
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk = nn.Linear(16, 32)
        self.near = nn.Parameter(torch.randn(49) * 0.5)

    def forward(self, x):
        y = self.qk(x)
        q, k = y[..., :16], y[..., 16:]
        n = x.shape[1]
        row = torch.arange(1 - n, n).clamp(-24, 24) + 24
        bias = self.near[row].unfold(0, n, 1).flip(0) if n else self.near.new_zeros(0, 0)
        z = torch.bmm(q, k.transpose(1, 2)) * 0.25 + bias
        return F.softmax(z, 2) @ x
