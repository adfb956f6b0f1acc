"""Cotangents beyond what float16 holds are clamped, as of a loss that is scaled.

reference: linear
test: cotangents
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
        if y.requires_grad:
            y.register_hook(lambda g: g.clamp(min=-65504.0, max=65504.0))
        return y
