"""One scale for all weights.

reference: linear
test: NaN in a weight
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        scale = self.linear.weight.detach().abs().max()  # NaN makes all of it NaN
        w = self.linear.weight / scale * scale
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, self.linear.bias))
