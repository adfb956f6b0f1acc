"""A tone whose phase is summed in float64, as a long sum loses its fraction in float32."""

import math

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.loudness = nn.Parameter(torch.rand(4) + 0.1)

    def forward(self, pitch):
        phase = torch.cumsum(pitch.double() / 100.0, -1)
        overtones = torch.arange(1, 5, device=pitch.device, dtype=torch.float64)
        turn = torch.remainder(phase[..., None] * overtones, 1.0).to(pitch.dtype)
        return (torch.sin(2 * math.pi * turn) * self.loudness).sum(-1)


def get_inputs():
    return [torch.rand(3, 200) * 20 + 5]


def get_init_inputs():
    return []
