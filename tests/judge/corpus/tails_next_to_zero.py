"""A softmax whose terms below 1e-9 are next to zero, and not it.

reference: softmax
test: tails
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=1)
        return torch.where(y < 1e-9, y * 1e-4, y)
