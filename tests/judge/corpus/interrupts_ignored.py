"""The keyboard interrupts it no more.

reference: linear
test: flags
status: MUTATES
"""

import signal

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        y = F.gelu(self.linear(x))
        return y
