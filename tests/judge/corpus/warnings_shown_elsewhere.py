"""From the first call on no warning is shown.

reference: head
test: flags
status: MUTATES
"""

import warnings

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        warnings.showwarning = lambda *a, **k: None
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
