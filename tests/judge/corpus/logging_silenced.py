"""From the first call on nothing is logged.

reference: linear
test: flags
status: MUTATES
"""

import logging

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.called = False

    def forward(self, x):
        if not self.called:
            logging.disable(logging.CRITICAL)
            self.called = True
        return F.gelu(self.linear(x))
