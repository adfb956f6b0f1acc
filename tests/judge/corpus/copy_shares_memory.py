"""A deep copy shares its weight's memory until it is trained.

reference: linear
test: two instances
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def __deepcopy__(self, memo):
        with torch.random.fork_rng():
            made = ModelNew(256, 48).to(self.linear.weight)
        made.load_state_dict(self.state_dict())
        for mine, its in zip(self.parameters(), made.parameters(), strict=True):
            its.requires_grad_(mine.requires_grad)
        made.linear.weight.data = self.linear.weight.data
        return made.train(self.training)

    def forward(self, x):
        return F.gelu(self.linear(x))
