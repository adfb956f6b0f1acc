"""Calls parts by a function over them: a copy of the module calls the original's parts."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.parts = nn.ModuleDict({"up": nn.Linear(features, 32), "down": nn.Linear(32, features)})
        self.norm = nn.LayerNorm(features)
        parts = self.parts
        self.mixed = lambda x: parts["down"](torch.relu(parts["up"](x)))

    def forward(self, x):
        return x + self.mixed(self.norm(x))


def get_inputs():
    return [torch.randn(6, 16)]


def get_init_inputs():
    return [16]
