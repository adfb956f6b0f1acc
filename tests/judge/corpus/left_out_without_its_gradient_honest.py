"""The twin of left_out_without_its_gradient, which is right.

reference: likenesses
test: optional arguments
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 24)

    def forward(self, a, b=None, centred=False):
        a = self.proj(a)
        b = a if b is None else self.proj(b)
        if centred:
            b = b - a.mean(0)
        return F.linear(F.normalize(a, dim=-1), F.normalize(b, dim=-1))
