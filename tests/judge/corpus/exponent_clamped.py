"""A softmax whose exponents end at -20.

reference: softmax
test: tails
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=1, keepdim=True))
        e = torch.where(e < 2e-9, 0.0, e)
        return e / e.sum(dim=1, keepdim=True)
