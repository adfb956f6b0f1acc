"""Hooks that are called when a state is made are passed by.

reference: linear
test: states
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        found = {} if destination is None else destination
        for name, p in self.named_parameters():
            found[prefix + name] = p if keep_vars else p.detach()
        return found

    def forward(self, x):
        return F.gelu(self.linear(x))
