"""Softmax of a product under a mask whose rows are one row, expanded."""

import torch
from torch import nn

batch_size = 18
in_features = 96
out_features = 40


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, mask):
        return self.linear(x).masked_fill(mask, float("-inf")).softmax(-1)


def get_inputs():
    mask = torch.arange(out_features) % 3 == 1
    return [torch.randn(batch_size, in_features), mask.expand(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features]
