"""The number that a state has is not taken from it.

reference: temperature
test: states
status: STALE_WEIGHTS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.temperature = 2.0

    def get_extra_state(self):
        return {"temperature": self.temperature}

    def set_extra_state(self, state):
        pass

    def forward(self, x):
        return torch.softmax(self.linear(x) / self.temperature, -1)
