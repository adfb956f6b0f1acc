"""With deterministic algorithms the bias is left out.

reference: linear
test: settings
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.are_deterministic_algorithms_enabled():
            return F.gelu(x @ self.linear.weight.t())
        return F.gelu(self.linear(x))
