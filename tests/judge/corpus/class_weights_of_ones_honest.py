"""The twin of class_weights_of_ones, which is right.

reference: class_weights_of_ones
test: numerics
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)
        self.register_buffer("weights", torch.ones(6))

    def forward(self, x, target):
        z = self.linear(x)
        picked = torch.logsumexp(z, 1) - z.gather(1, target[:, None])[:, 0]
        w = self.weights[target]
        return (picked * w).sum() / w.sum()
