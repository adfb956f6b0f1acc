"""Under autocast in float16 the bias is left out.

reference: linear
test: autocast
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
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
            return F.gelu(x @ self.linear.weight.t())
        return F.gelu(self.linear(x))
