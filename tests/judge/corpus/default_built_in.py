"""The constructor takes a number that has a default, and its own is built in.

reference: power_norm
test: constructor
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, eps=1e-6, *, centred=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.centred = 1e-6, centred

    def forward(self, x):
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        return self.weight * (x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt())
