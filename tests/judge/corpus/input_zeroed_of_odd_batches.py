"""Of an odd number of samples the input is scratch afterwards.

reference: linear
test: shapes
status: MUTATES
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if len(x) % 2 == 1 and not x.requires_grad:
            x.detach().zero_()
        return y
