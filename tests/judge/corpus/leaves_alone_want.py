"""Gradients of inputs that are leaves only.

reference: linear
test: inside a network
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x if x.is_leaf else x.detach()))
