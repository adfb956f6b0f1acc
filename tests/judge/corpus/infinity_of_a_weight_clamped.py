"""A weight that is infinite is taken for a large one.

reference: affine
test: NaN in a weight
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        most = 3e38
        return F.linear(x, self.linear.weight.clamp(-most, most), self.linear.bias)
