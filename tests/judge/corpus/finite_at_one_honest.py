"""The twin of finite_at_one, which is right.

reference: turning
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.register_buffer("edges", torch.linspace(-2, 2, 9))

    def forward(self, x):
        y, above = torch.atanh(x), torch.where(x > 0.25, x, 0.0)
        return torch.round(x), above, y, self.table(torch.bucketize(x, self.edges))
