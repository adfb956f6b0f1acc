"""The twin of determinism_switched_off, which is right.

reference: linear
test: settings
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = torch.are_deterministic_algorithms_enabled()
        torch._C._set_deterministic_algorithms(False)
        y = F.gelu(self.linear(x))
        torch._C._set_deterministic_algorithms(before)
        return y
