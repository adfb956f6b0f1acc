"""Linear, less a moving average that each call in training moves on: calls depend on calls."""

import torch
from torch import nn

batch_size = 18
in_features = 96
out_features = 40


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_buffer("average", torch.zeros(m))

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.average.mul_(0.75).add_(y.detach().mean(0), alpha=0.25)
        return y - self.average


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
