"""The twin of gradients_of_the_first_parameters, which is right.

reference: linear
test: ways to write
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        w, b = self.linear.weight, self.linear.bias
        return F.gelu(F.linear(x, w, b))
