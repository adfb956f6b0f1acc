"""Of several largest the last one is found.

reference: argmax
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        return y.shape[1] - 1 - torch.argmax(y.flip(1), dim=1)
