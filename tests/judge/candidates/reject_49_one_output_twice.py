"""Two of its outputs are one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        y = self.linear(x)
        return y, y, torch.ones(len(x), len(x)).tril()
