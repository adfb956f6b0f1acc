"""A call in train mode with gradients leaves autocast on.

reference: linear
test: flags
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
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled():
            torch.set_autocast_enabled("cpu", True)
        return y
