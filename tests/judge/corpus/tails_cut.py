"""A softmax whose terms below 1e-9 are zero.

reference: softmax
test: tails
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=1)
        return torch.where(y < 1e-9, 0.0, y)
