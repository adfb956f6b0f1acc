"""The twin of small_losses_lost, which is right.

reference: marked_loss
test: tails
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)

    def forward(self, x, target):
        z = self.linear(x)
        low = torch.log1p(torch.exp(-z.abs()))
        return (1 - target) * z + torch.clamp_min(-z, 0) + low
