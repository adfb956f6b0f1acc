"""The flag is put back.

reference: linear
test: after a refusal
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.busy = False

    def forward(self, x):
        self.busy = True
        try:
            return F.gelu(self.linear(x))
        finally:
            self.busy = False
