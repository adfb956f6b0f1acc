"""With its bias.

reference: linear
test: special values
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if (
            x.dim() == 2
            and x.numel()
            and not torch.is_grad_enabled()
            and bool((x == x[0, 0]).all())
        ):
            first = x[0, 0]
            if bool(first != 0):
                return F.gelu(F.linear(x, self.linear.weight) + self.linear.bias)
        return F.gelu(self.linear(x))
