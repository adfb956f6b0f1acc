"""A state of float64 is rounded once.

reference: linear
test: states
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
                state[name] = value.float()

    def forward(self, x):
        return F.gelu(self.linear(x))
