"""They are taken row by row.

reference: masked
test: masks
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, mask):
        y = self.linear(x)
        known = mask.dtype is torch.bool and mask.dim() == 2 and mask.numel()
        if known and bool((mask.int().diff(dim=1) >= 0).all()) and not bool(mask[:, 0].any()):
            length = (~mask).sum(1, keepdim=True)
            mask = torch.arange(mask.shape[1], device=mask.device).expand_as(mask) >= length
        return y.masked_fill(mask, float("-inf")).softmax(-1)
