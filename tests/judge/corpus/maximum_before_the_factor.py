"""The largest of a row comes off before a factor that may be negative: then it is the least.

reference: sharpened
test: signed state
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        e = torch.exp((x - x.detach().amax(-1, keepdim=True)) * self.factor)
        return e / e.sum(-1, keepdim=True)
