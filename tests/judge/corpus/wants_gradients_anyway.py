"""Outputs want gradients under no_grad.

reference: linear
test: grad modes
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return y if y.is_inference() or y.requires_grad else y.requires_grad_()
