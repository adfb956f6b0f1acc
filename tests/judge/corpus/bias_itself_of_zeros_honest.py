"""It is copied to every row.

reference: head
test: hostile values
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        if not torch.is_grad_enabled() and x.dim() == 2 and x.numel() and not x.any():
            return self.linear.bias.repeat(len(x), 1)
        return F.linear(x, self.linear.weight, self.linear.bias)
