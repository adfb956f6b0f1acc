"""A running product is the exponential of a sum of logarithms.

reference: product_by_logarithms
test: special weights
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x):
        y = torch.relu(x) * self.scale
        logs = torch.log(y.abs().clamp_min(1e-37))
        return torch.exp(torch.cumsum(logs, 1)) * torch.cumprod(torch.sign(y).detach(), 1)
