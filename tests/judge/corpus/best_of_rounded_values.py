"""All are sorted by values of 16 bits, of which more are equal.

reference: best
test: hostile values
status: WRONG_NUMERICS
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
        index = torch.sort(y.bfloat16(), dim=-1, descending=True, stable=True).indices
        index = index[..., : self.k].contiguous()
        return {"values": y.gather(-1, index), "index": index}
