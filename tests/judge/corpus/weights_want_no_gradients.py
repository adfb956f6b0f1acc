"""A call without gradients leaves its bias frozen.

reference: linear
test: optimizer loop
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
        if not torch.is_grad_enabled():
            self.linear.bias.requires_grad_(False)
        return F.gelu(self.linear(x))
