"""The input wants gradients after the call.

reference: linear
test: mutation
status: MUTATES
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not x.is_inference() and x.is_leaf and x.is_floating_point():
            x.requires_grad_(True)
        return F.gelu(self.linear(x))
