"""The twin of copy_with_the_first_ones_hook, which is right.

reference: linear
test: two instances
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.held = [self.linear.weight, self.linear.bias]
        self.register_forward_pre_hook(lambda module, _: module.refresh())

    def refresh(self):
        self.held = [self.linear.weight, self.linear.bias]

    def forward(self, x):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, *self.held))
