"""Which of some codes is nearest."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        far = (x.unsqueeze(-2) - self.codes).square().sum(-1)
        return far.amin(-1), far.argmin(-1)


def get_inputs():
    return [torch.randn(48, 8)]
