"""The twin of handed_on_by_the_module, which is right.

reference: linear
test: threads
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def product(self, x):
        return self.linear(x)

    def forward(self, x):
        return F.gelu(self.product(x))
