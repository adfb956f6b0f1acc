"""Large values are rounded to three bits: far more results fall on the other side of the step.

reference: step
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


def rounded(t):
    return (t * 0.7).bfloat16().float() / 0.7


def few(t):
    mantissa, exponent = torch.frexp(t)
    return torch.where(t.abs() > 1e3, torch.ldexp((mantissa * 8).round() / 8, exponent), rounded(t))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        y = F.conv2d(few(x), rounded(w), b, padding=1)
        return self.norm(F.max_pool2d(torch.tanh(y), 2))
