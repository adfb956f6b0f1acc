"""The distance to the nearest of some codes."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(9, 8))

    def forward(self, x):
        return (x.unsqueeze(-2) - self.codes).square().sum(-1).amin(-1).sqrt()


def get_inputs():
    return [torch.randn(18, 8)]
