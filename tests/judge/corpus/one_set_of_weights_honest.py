"""The twin of one_set_of_weights, which is right.

reference: layers
test: vmap
"""

import torch
import torch.nn.functional as F
from torch import nn


def first_of(t):
    functorch = torch._C._functorch
    return functorch.get_unwrapped(t)[0] if functorch.is_batchedtensor(t) else t


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)

    def forward(self, x):
        w = self.second.weight
        return F.linear(torch.relu(self.first(x)), w, self.second.bias)
