"""train() leaves frozen what is frozen.

reference: kept_or_all
test: frozen parameters
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.weight = nn.Parameter(torch.randn(12, 7))
        self.bias = nn.Parameter(torch.zeros(7))

    def train(self, mode=True):
        super().train(mode)
        self.trained = mode
        return self

    def forward(self, x, keep=None):
        y = x @ self.weight + self.bias
        y = torch.where(y > 0, y, y * self.slope)
        return y if keep is None else y * keep[:, None]
