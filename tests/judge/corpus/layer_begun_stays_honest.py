"""The twin of layer_begun_stays, which is right.

reference: layers
test: after a refusal
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.begun = {}

    def __getstate__(self):
        return {**super().__getstate__(), "begun": {}}

    def forward(self, x):
        me = threading.get_ident(), x.shape, x.dtype
        self.begun.pop(me, None)
        if me not in self.begun:
            self.begun[me] = torch.relu(self.first(x))
        y = self.second(self.begun[me])
        del self.begun[me]
        return y
