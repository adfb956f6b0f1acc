"""Loading a state draws random numbers.

reference: linear
test: ways to write
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def load_state_dict(self, *given, **options):
        torch.rand(3)
        return super().load_state_dict(*given, **options)

    def forward(self, x):
        return F.gelu(self.linear(x))
