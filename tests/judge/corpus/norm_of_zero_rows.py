"""The gradient of a row's norm is not finite where the row is zero.

reference: norm_of_zero_rows
test: far gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6, bias=False)

    def forward(self, x):
        y = x @ self.linear.weight.T
        s = (y * y).sum(1)
        return torch.sqrt(s) + y.sum(1)
