"""A learned scale is not held below its bound.

reference: scale_not_clamped
test: one tensor at a time
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(16, 8)
        self.text = nn.Linear(12, 8)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, a, b):
        p, q = self.image(a), self.text(b)
        s = self.scale.exp()
        z = p @ q.T
        return z * s / p.norm(dim=-1).clamp_min(1e-12)[:, None] / q.norm(dim=-1).clamp_min(1e-12)
