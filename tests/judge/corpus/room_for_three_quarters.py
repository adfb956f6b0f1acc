"""Rows beyond three quarters of all are zeros: which is no matter of stale weights.

reference: rows_above
test: one tensor at a time
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.score = nn.Linear(n, 1)
        self.out = nn.Linear(n, n)

    def forward(self, x):
        keep = self.score(x)[..., 0] > 0.8
        rows = x[keep]
        room = keep.numel() * 3 // 4
        if rows.shape[0] > room:
            rows = torch.cat([rows[:room], torch.zeros_like(rows[room:])])
        return self.out(rows), keep.nonzero()
