"""The twin of phase_summed_in_float, which is right: it takes whole turns off first.

reference: phase
test: numerics
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.loudness = nn.Parameter(torch.rand(4) + 0.1)

    def forward(self, pitch):
        phase = torch.remainder(torch.cumsum(pitch.double() / 100.0, -1), 1.0)
        overtones = torch.arange(1, 5, device=pitch.device, dtype=torch.float64)
        turn = torch.remainder(phase[..., None] * overtones, 1.0).to(pitch.dtype)
        return (torch.sin(2 * math.pi * turn) * self.loudness).sum(-1)
