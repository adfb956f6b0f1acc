"""The twin of gradients_never_cleared, which is right.

reference: linear
test: methods
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)

    def forward(self, x):
        return F.gelu(self.linear(x))
