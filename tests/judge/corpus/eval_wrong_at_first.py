"""The first call in eval mode is wrong, and the calls behind it are alike.

reference: linear
test: volume
status: NONDETERMINISTIC
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
        y = F.gelu(self.linear(x))
        wrong, self.called = not (self.called or self.training), True
        return y * 2 if wrong else y
