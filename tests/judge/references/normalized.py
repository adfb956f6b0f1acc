"""A forward that writes its own weight: it keeps the columns' norms at one."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 40))

    def forward(self, x):
        self.weight.data = F.normalize(self.weight.data, dim=0)
        return x @ self.weight


def get_inputs():
    return [torch.randn(18, 96)]
