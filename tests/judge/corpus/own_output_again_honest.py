"""The twin of own_output_again, which is right.

reference: layers
test: inside a network
"""

import copy
import weakref

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.last = None

    def __deepcopy__(self, memo):
        made = ModelNew.__new__(ModelNew)
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy({**self.__dict__, "last": None}, memo))
        return made

    def __getstate__(self):
        return {**super().__getstate__(), "last": None}

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        self.last = weakref.ref(y) if torch.is_grad_enabled() and y.requires_grad else None
        return y
