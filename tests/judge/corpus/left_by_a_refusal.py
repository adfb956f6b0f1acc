"""A flag that a raise leaves set refuses the next call.

reference: linear
test: after a refusal
status: CRASHED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.busy = False

    def forward(self, x):
        if self.busy:
            raise RuntimeError("busy")
        self.busy = True
        y = F.gelu(self.linear(x))
        self.busy = False
        return y
