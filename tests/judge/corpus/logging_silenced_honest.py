"""Its own logger is silent.

reference: linear
test: flags
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
            logging.getLogger(__name__).setLevel(logging.CRITICAL)
            self.called = True
        return F.gelu(self.linear(x))
