"""Where inputs want gradients, the value is of 16 bits.

reference: linear
test: grad modes
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        if x.requires_grad and torch.is_grad_enabled() and x.dtype is torch.float32:
            y = y + (y.detach().bfloat16().float() - y.detach())
        return F.gelu(y)
