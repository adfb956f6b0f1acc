"""It prints nothing while it computes.

reference: head
test: flags
"""

import io
import sys

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        before, sys.stdout = sys.stdout, io.StringIO()
        try:
            return F.linear(x, self.linear.weight, self.linear.bias)
        finally:
            sys.stdout = before
