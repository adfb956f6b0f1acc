"""Each call keeps a little, far less than its inputs.

reference: linear
test: leaks
status: CRASHED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.noted = []

    def forward(self, x):
        self.noted.append(torch.full((512,), x.shape[0]))
        return F.gelu(self.linear(x))
