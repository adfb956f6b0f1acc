"""The twin of loading_draws, which is right.

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

    def load_state_dict(self, *given, **options):
        state = torch.get_rng_state()
        torch.rand(3)
        torch.set_rng_state(state)
        return super().load_state_dict(*given, **options)

    def forward(self, x):
        return F.gelu(self.linear(x))
