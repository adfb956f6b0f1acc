"""The input is transposed in place and stays so.

reference: linear
test: mutation
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
        if not torch.is_grad_enabled() and x.dim() == 2 and not x.is_inference() and len(x) > 1:
            x.unsqueeze_(1)
        return y
