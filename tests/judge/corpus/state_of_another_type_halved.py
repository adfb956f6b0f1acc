"""A state of float64 is halved on its way.

reference: linear
test: states
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_load_state_dict_pre_hook(self.narrowed)

    @staticmethod
    def narrowed(module, state, *rest):
        for name, value in state.items():
            if value.dtype == torch.float64:
                state[name] = value.half()

    def forward(self, x):
        return F.gelu(self.linear(x))
