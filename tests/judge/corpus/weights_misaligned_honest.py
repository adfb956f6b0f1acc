"""Such a weight is copied.

reference: linear
test: reload
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight
        if w.data_ptr() % 16 and not torch.is_grad_enabled():
            w = w.clone()
        return F.gelu(F.linear(x, w, self.linear.bias))
