"""What the first layer gave stays where a hook of the second ends the call, for the next one.

reference: layers
test: after a refusal
status: CRASHED
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
        if me not in self.begun:
            self.begun[me] = torch.relu(self.first(x))
        y = self.second(self.begun[me])
        del self.begun[me]
        return y
