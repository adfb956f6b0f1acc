"""Outputs beyond the forty-eighth are not computed.

reference: linear
test: constructor
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return torch.cat([y[..., :48], torch.zeros_like(y[..., 48:])], dim=-1)
