"""A linear layer and a GELU, so narrow that many rows are little."""

import torch
from torch import nn

batch_size = 18
in_features = 24
out_features = 8


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
