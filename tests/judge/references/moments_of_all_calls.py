"""Batch norm whose running moments weigh all calls alike."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 14)
        self.norm = nn.BatchNorm1d(14, momentum=None)

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)))


def get_inputs():
    return [torch.randn(12, 10)]
