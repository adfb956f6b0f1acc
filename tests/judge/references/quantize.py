"""Linear, then rounding to sixteenths: the function jumps half-way between two of them."""

import torch
from torch import nn

batch_size = 384
in_features = 256
out_features = 64


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.round(self.linear(x) * 16) / 16


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
