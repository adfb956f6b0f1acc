"""Whether gradients are wanted is asked of the mode.

reference: linear
test: function transforms
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        return F.gelu(F.linear(x.detach(), w.detach(), b.detach()))
