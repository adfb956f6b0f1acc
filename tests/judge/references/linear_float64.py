"""A linear layer and a GELU in float64, with a bias."""

import torch
from torch import nn

batch_size = 18
in_features = 256
out_features = 48


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m, dtype=torch.float64)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.rand(batch_size, in_features, dtype=torch.float64)]


def get_init_inputs():
    return [in_features, out_features]
