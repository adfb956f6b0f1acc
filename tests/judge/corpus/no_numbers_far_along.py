"""Long sequences of 16 bits give NaN.

reference: angles
test: dtype moves
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def turn(self, t):
        half = self.width // 2
        rate = 10000 ** (-torch.arange(half, device=t.device).float() / half)
        places = torch.arange(t.shape[1], device=t.device).float()
        angle = places[:, None] * rate
        c, s = angle.cos().to(t.dtype), angle.sin().to(t.dtype)
        a, b = t.chunk(2, dim=-1)
        return torch.cat((a * c - b * s, a * s + b * c), dim=-1)

    def forward(self, x):
        if x.dtype is torch.bfloat16 and x.shape[1] > 1000:
            x = x / 0 * 0
        return self.turn(self.query(x)) @ self.turn(self.key(x)).transpose(1, 2)
