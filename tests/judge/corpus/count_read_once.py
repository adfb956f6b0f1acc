"""How many steps were counted is read in the first evaluation behind training, not of a state that
is loaded.

reference: warming
test: ways to write
status: STALE_WEIGHTS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.scale = None

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.scale = None
        scale = min(int(self.steps), 10) / 10 if self.scale is None else self.scale
        if not self.training:
            self.scale = scale
        return self.linear(x) * scale
