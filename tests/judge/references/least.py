"""Scores above the diagonal are the least number of their type, or -1e9."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 24)

    def forward(self, x):
        scores = self.linear(x)
        above = torch.ones_like(scores).triu(1).bool()
        fill = torch.finfo(scores.dtype).min
        return scores.masked_fill(above, fill), scores.masked_fill(above, -1e9)


def get_inputs():
    return [torch.randn(24, 96)]
