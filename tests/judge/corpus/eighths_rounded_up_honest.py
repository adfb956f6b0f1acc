"""The twin of eighths_rounded_up, which is right: it is the nearer of two, or the even one.

reference: steps_of_an_eighth
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x * 8
        low = torch.floor(y)
        over = y - low
        even = torch.where(torch.remainder(low, 2) == 0, low, low + 1)
        q = torch.where(over == 0.5, even, torch.where(over < 0.5, low, low + 1))
        return x + (q.clamp(-128, 127) / 8 - x).detach()
