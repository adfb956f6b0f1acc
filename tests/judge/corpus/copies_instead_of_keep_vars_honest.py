"""It gives the parameters.

reference: linear
test: states
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
                state[name] = state[name]
        return state

    def forward(self, x):
        return F.gelu(self.linear(x))
