"""Rounded to eight bits, by the reciprocal of the scale.

reference: int8
test: autocast
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 48)

    def forward(self, x):
        y = F.linear(x, self.linear.weight, self.linear.bias)
        scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        return torch.round(y * (1 / scale)).clamp(-127, 127).to(torch.int8), scale
