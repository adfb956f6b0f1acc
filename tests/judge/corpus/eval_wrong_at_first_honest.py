"""The same, without the error: what is noted of calls changes none.

reference: linear
test: volume
status: ACCEPTED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.called = False

    def train(self, mode=True):
        self.called = False
        return super().train(mode)

    def forward(self, x):
        self.called = True
        return F.gelu(self.linear(x))
