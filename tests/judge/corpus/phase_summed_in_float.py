"""A phase is summed in float32, which the reference widens before the sum.

reference: phase
test: numerics
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.loudness = nn.Parameter(torch.rand(4) + 0.1)

    def forward(self, pitch):
        phase = torch.cumsum(pitch / 100.0, -1).double()
        overtones = torch.arange(1, 5, device=pitch.device, dtype=torch.float64)
        turn = torch.remainder(phase[..., None] * overtones, 1.0).to(pitch.dtype)
        return (torch.sin(2 * math.pi * turn) * self.loudness).sum(-1)
