"""Numbers of 16 bits are squared before they are widened.

reference: mean_square
test: dtype moves
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(48))

    def forward(self, x):
        scale = torch.rsqrt(x.square().float().mean(-1, keepdim=True) + 1e-6)
        return self.weight.to(x.dtype) * (x * scale).to(x.dtype)
