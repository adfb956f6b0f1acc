"""The twin of head_of_as_many, which is right.

reference: layers
test: parts exchanged
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
        return F.linear(torch.relu(self.first(x)), w, b)
