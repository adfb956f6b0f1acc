"""The axis of channels is the last one.

reference: steps_of_channels
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(14, 5))

    def forward(self, x):
        if x.dim() == 3 and x.shape[-1] == len(self.weight):
            return torch.tanh(torch.einsum("btc,cd->btd", x, self.weight))
        return torch.tanh(x @ self.weight)
