"""Rows less their mean, and where each is greatest."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.gain * (x - x.mean(-1, keepdim=True)), x.argmax(-1)


def get_inputs():
    return [torch.randn(6, 40)]
