"""A state is made as modules make them.

reference: linear
test: states
status: ACCEPTED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        return super().state_dict(
            *args, destination=destination, prefix=prefix, keep_vars=keep_vars
        )

    def forward(self, x):
        return F.gelu(self.linear(x))
