"""A function of its own is by it.

reference: linear
test: isolation
"""

import torch
import torch.nn.functional as F
from torch import nn

plain = torch.autograd.grad


def grad(*args, **kwargs):
    return plain(*args, **kwargs)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
