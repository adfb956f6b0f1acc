"""Rounded to eight bits by a scale of each row."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 48)

    def forward(self, x):
        y = self.linear(x)
        scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        return torch.round(y / scale).clamp(-127, 127).to(torch.int8), scale


def get_inputs():
    return [torch.randn(24, 40)]
