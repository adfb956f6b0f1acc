"""Two outputs of unlike dtypes, by name."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        y = self.linear(x)
        return {"above": y > 0.1, "all": y, "sum": y.sum(-1)}


def get_inputs():
    return [torch.randn(18, 96)]
