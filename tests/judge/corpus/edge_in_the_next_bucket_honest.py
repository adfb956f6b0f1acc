"""The twin of edge_in_the_next_bucket, which is right.

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
        above = torch.where(x > 0.25, x, 0.0)
        at = torch.bucketize(x, self.edges)
        return torch.round(x), above, torch.atanh(x), self.table(at)
