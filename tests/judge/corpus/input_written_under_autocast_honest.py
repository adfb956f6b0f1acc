"""Under autocast a copy of the input is written to.

reference: linear
test: autocast
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
        if torch.is_autocast_enabled("cpu") and not x.requires_grad:
            x.clone().zero_()
        return y
