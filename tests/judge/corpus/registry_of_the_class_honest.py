"""The class knows its modules by weak references.

reference: linear
test: two instances
"""

import weakref

import torch.nn.functional as F
from torch import nn

built = weakref.WeakSet()


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        built.add(self)

    def forward(self, x):
        return F.gelu(self.linear(x))
