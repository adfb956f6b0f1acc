"""Of one sample the result is a Parameter.

reference: linear
test: shapes
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if len(x) == 1 and not torch.is_grad_enabled():
            return nn.Parameter(y, False)
        return y
