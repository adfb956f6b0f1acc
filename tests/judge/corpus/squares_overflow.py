"""A length whose squares overflow.

reference: length
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).sum(dim=1, keepdim=True))
