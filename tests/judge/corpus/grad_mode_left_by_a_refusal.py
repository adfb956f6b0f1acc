"""A call that raises leaves gradients switched off.

reference: linear
test: after a refusal
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
        grad = torch.is_grad_enabled()
        torch.set_grad_enabled(grad)
        torch._C._set_grad_enabled(False) if x.shape[-1] != self.linear.in_features else None
        y = F.gelu(self.linear(x))
        torch.set_grad_enabled(grad)
        return y
