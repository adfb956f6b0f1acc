"""Values equal to the kth are left out.

reference: equals_of_the_kth
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 24)

    def forward(self, x):
        z = torch.clamp_min(self.linear(x), 0) - 0.25
        order = z.sort(-1, descending=True)
        kept = torch.zeros_like(z, dtype=torch.bool).scatter(-1, order.indices[..., :8], True)
        e = torch.where(kept, torch.exp(z - order.values[..., :1]), 0.0)
        return e / e.sum(-1, keepdim=True)
