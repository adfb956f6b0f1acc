"""A call that raises leaves another default dtype.

reference: linear
test: after a refusal
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        y = F.gelu(self.linear(x))
        torch.set_default_dtype(before)
        return y
