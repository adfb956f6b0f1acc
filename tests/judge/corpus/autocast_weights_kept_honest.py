"""They are cast at each call.

reference: linear
test: weights in other modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.cast = None

    def forward(self, x):
        if not torch.is_autocast_enabled("cpu"):
            return F.gelu(self.linear(x))
        to = torch.get_autocast_dtype("cpu")
        return F.gelu(F.linear(x.to(to), self.linear.weight.to(to), self.linear.bias.to(to)))
