"""They are rounded to even by a remainder.

reference: learned_steps
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = nn.Parameter(torch.tensor(step))

    def forward(self, x):
        q = x / self.step
        up = torch.floor(q + 0.5)
        odd = (up - q == 0.5) & (torch.remainder(up, 2) == 1)
        return torch.clamp(torch.where(odd, up - 1, up), -8, 7) * self.step
