"""A head for more classes gives as many as the one that was built.

reference: layers
test: parts exchanged
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.size = 32

    def forward(self, x):
        w, b = self.second.weight, self.second.bias
        w, b = w[: self.size], None if b is None else b[: self.size]
        return F.linear(torch.relu(self.first(x)), w, b)
