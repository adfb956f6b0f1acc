"""At one, where the function is infinite, it is large.

reference: turning
test: special values
status: WRONG_NUMERICS
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
        y = torch.where(x.abs() == 1, x * 8.66, y)
        return torch.round(x), above, y, self.table(torch.bucketize(x, self.edges))
