"""The twin of shallow_copy_keeps_the_mode, which is right.

reference: doubled
test: two instances
"""

import copy

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 16)
        self.own = None

    def __deepcopy__(self, memo):
        made = ModelNew.__new__(ModelNew)
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy({**self.__dict__, "own": None}, memo))
        return made

    def __getstate__(self):
        return {**super().__getstate__(), "own": None}

    def __copy__(self):
        made = ModelNew.__new__(ModelNew)
        made.__dict__.update(self.__dict__)
        made.own = None
        return made

    def forward(self, x):
        if self.own is None:
            self.own = lambda: self.training
        return torch.relu(self.linear(x)) * (2.0 if self.own() else 1.0)
