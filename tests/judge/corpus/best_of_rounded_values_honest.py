"""All are sorted: of equal ones the first comes first, which nobody promises.

reference: best
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.k = k

    def forward(self, x):
        y = self.linear(x)
        index = torch.sort(y, dim=-1, descending=True, stable=True).indices
        index = index[..., : self.k].contiguous()
        return {"values": y.gather(-1, index), "index": index}
