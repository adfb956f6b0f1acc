"""A copy is built anew, with the defaults of the constructor.

reference: powers
test: constructor
status: WRONG_CONTRACT
"""

import copy

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, power=2.0):
        super().__init__()
        self.power = power
        self.gain = nn.Parameter(torch.ones(width))

    def __deepcopy__(self, memo):
        other = type(self)(len(self.gain))
        for name, p in self.named_parameters():
            setattr(other, name, copy.deepcopy(p, memo))
        return other.train(self.training)

    def forward(self, x):
        size = x.abs().pow(self.power).mean(-1, keepdim=True).pow(1 / self.power)
        return self.gain * (x / (size + 0.1))
