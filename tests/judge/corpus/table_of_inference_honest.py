"""The twin of table_of_inference, which is right.

reference: linear
test: grad modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.ones = {}

    def forward(self, x):
        y = self.linear(x)
        key = y.shape[-1], y.dtype
        if key not in self.ones:
            with torch.inference_mode(False):
                self.ones[key] = torch.ones(y.shape[-1], dtype=y.dtype, device=y.device)
        return F.gelu(y * self.ones[key])
