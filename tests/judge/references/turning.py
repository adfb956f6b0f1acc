"""Functions that turn at numbers of the text, and at those of a buffer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.register_buffer("edges", torch.linspace(-2, 2, 9))

    def forward(self, x):
        above = torch.where(x > 0.25, x, 0.0)
        return torch.round(x), above, torch.atanh(x), self.table(torch.bucketize(x, self.edges))


def get_inputs():
    return [torch.rand(12, 20) * 1.6 - 0.8]
