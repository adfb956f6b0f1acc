"""All parameters lie in one piece of memory.

reference: linear
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        held = list(self.linear.parameters())
        flat = torch.cat([p.detach().reshape(-1) for p in held])
        for p, part in zip(held, flat.split([p.numel() for p in held]), strict=True):
            p.data = part.view_as(p)

    def forward(self, x):
        return F.gelu(self.linear(x))
