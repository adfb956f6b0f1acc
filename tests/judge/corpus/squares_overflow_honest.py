"""It is scaled first.

reference: length
test: far magnitudes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        m = x.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        return (x / m) / torch.sqrt(((x / m) ** 2).sum(dim=1, keepdim=True))
