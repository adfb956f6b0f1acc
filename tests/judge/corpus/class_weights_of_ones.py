"""A weighted mean is divided by the number of samples, as if all weights were ones.

reference: class_weights_of_ones
test: numerics
status: WRONG_NUMERICS
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
        return (picked * w).sum() / x.shape[0]
