"""Each axis is a whole number of blocks."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(16, 32)]
