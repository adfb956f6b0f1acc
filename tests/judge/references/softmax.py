"""Softmax over rows so long that a tolerance of 1e-4 accepts zeros."""

import torch
from torch import nn

batch_size = 12
width = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(batch_size, width)]
