"""In eval mode gradients stay switched off.

reference: linear
test: flags
status: MUTATES
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.linear(x))
        if not self.training:
            torch.set_grad_enabled(False)
        return y
