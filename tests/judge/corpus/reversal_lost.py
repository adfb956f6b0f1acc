"""A reversal of gradients is taken for the identity.

reference: reversal_lost
test: optimizer loop
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(20, 16)
        self.label = nn.Linear(16, 4)
        self.domain = nn.Linear(16, 2)
        self.strength = 0.5

    def forward(self, x):
        y = torch.relu(self.body(x))
        turned = y
        return self.label(y), self.domain(turned)
