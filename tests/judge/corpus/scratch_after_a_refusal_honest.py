"""They begin anew.

reference: linear
test: after a refusal
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.parts = []

    def forward(self, x):
        self.parts.clear()
        self.parts.append(x.sum() * 0)
        return F.gelu(self.linear(x)) + len(self.parts) - 1
