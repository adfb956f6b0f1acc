"""It is read there, too.

reference: pooled_under_a_mask
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 12)

    def forward(self, x, keep):
        whole = keep.shape[1] // 64 * 64
        last = keep[:, whole:]
        keep = torch.cat([keep[:, :whole], last], 1)
        return self.linear(x).masked_fill(~keep[..., None], 0.0).sum(1)
