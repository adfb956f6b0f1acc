"""The twin of squares_before_they_are_widened, which is right.

reference: mean_square
test: dtype moves
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(48))

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return self.weight.to(x.dtype) * (x * scale).to(x.dtype)
