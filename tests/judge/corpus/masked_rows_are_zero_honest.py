"""It is what eager's is.

reference: masked
test: masks
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, mask):
        y = self.linear(x)
        y = y.masked_fill(mask, float("-inf"))
        e = torch.exp(y - y.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
