"""The last row is remembered where it lies in the input.

reference: last_row_of_the_input
test: kinds of inputs
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_buffer("last", torch.zeros(n))

    def forward(self, x):
        y = self.linear(x - self.last)
        self.last = x.detach()[-1]
        return y
