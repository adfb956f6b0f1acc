"""With gradients the result lies column by column.

reference: linear
test: grad modes
status: WRONG_CONTRACT
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
        if torch.is_grad_enabled() and y.dim() == 2:
            y = (self.linear.weight @ x.t() + self.linear.bias[:, None]).t()
            return F.gelu(y)
        return y
