"""The class knows one width, the last built.

reference: linear
test: two instances
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        type(self).width = m

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return y[..., : self.width].contiguous()
