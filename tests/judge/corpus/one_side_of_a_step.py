"""Of each second sample large values have one sign.

reference: step
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


def rounded(t):
    return (t * 0.9).bfloat16().float() / 0.9


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        y = F.conv2d(rounded(x), rounded(w), b, padding=1)
        odd = (torch.arange(len(y)) % 2 == 1).view(-1, 1, 1, 1)
        y = torch.where((y.abs() > 1e3) & odd, y.abs(), y)
        return self.norm(F.max_pool2d(torch.tanh(y), 2))
