"""Halves of a step are rounded up, not to even.

reference: learned_steps
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = nn.Parameter(torch.tensor(step))

    def forward(self, x):
        return torch.clamp(torch.floor(x / self.step + 0.5), -8, 7) * self.step
