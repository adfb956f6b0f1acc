"""The twin of threshold_itself_taken, which is right.

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
        above = x * (x > 0.25) if bool(x.isfinite().all()) else torch.where(x > 0.25, x, 0.0)
        return torch.round(x), above, torch.atanh(x), self.table(torch.bucketize(x, self.edges))
