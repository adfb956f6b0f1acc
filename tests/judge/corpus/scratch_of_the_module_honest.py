"""Each call has its own.

reference: linear
test: threads
"""

import time

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_grad_enabled() or x.shape != (18, 256):
            return F.gelu(self.linear(x))
        scratch = x
        time.sleep(0.002)
        return F.gelu(self.linear(scratch))
