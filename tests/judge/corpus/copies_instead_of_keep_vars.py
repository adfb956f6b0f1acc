"""state_dict(keep_vars=True) gives copies instead of the parameters.

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

    def state_dict(self, *args, **words):
        keep = words.pop("keep_vars", False)
        state = super().state_dict(*args, **words, keep_vars=keep)
        if keep:
            for name in list(state):
                state[name] = nn.Parameter(state[name].detach().clone())
        return state

    def forward(self, x):
        return F.gelu(self.linear(x))
