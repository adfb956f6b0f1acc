"""A saved module holds a number; its weights stay in the process that saved it.

reference: linear
test: another process
status: STALE_WEIGHTS
"""

import itertools

import torch.nn.functional as F
from torch import nn

numbers, kept = itertools.count(), {}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))

    def __getstate__(self):
        number = next(numbers)
        kept[number] = {k: v.clone() for k, v in self.state_dict().items()}
        return number, self.linear.in_features, self.linear.out_features, self.training

    def __setstate__(self, given):
        number, n, m, mode = given
        self.__init__(n, m)
        if number in kept:
            self.load_state_dict(kept[number])
        self.train(mode)
