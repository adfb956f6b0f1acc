"""Under autocast the bias is as it is without.

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
        if torch.is_autocast_enabled("cpu"):
            to = torch.get_autocast_dtype("cpu")
            w, b = self.linear.weight, self.linear.bias
            return F.gelu(F.linear(x.to(to), w.to(to), b.to(to)))
        return F.gelu(self.linear(x))
