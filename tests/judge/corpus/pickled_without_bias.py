"""A module that was saved and loaded has lost its bias.

reference: linear
test: pickle
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def __getstate__(self):
        state = dict(vars(self))
        state["lost"] = True
        return state

    def forward(self, x):
        y = self.linear(x)
        return F.gelu(y - self.linear.bias if getattr(self, "lost", False) else y)
