"""torch.autograd.grad is another function after the import.

reference: linear
test: isolation
status: CHEATS
"""

import torch
import torch.nn.functional as F
from torch import nn

plain = torch.autograd.grad


def grad(*args, **kwargs):
    return plain(*args, **kwargs)


torch.autograd.grad = grad


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
