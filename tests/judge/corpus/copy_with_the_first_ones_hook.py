"""A hook that refreshes what the module reads is the original's, in a copy, too.

reference: linear
test: two instances
status: STALE_WEIGHTS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.held = [self.linear.weight, self.linear.bias]
        self.register_forward_pre_hook(lambda *_: self.refresh())

    def refresh(self):
        self.held = [self.linear.weight, self.linear.bias]

    def forward(self, x):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, *self.held))
