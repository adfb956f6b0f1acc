"""The twin of compiled_whole, which is right.

reference: compiled_whole
test: cotangents
"""

import torch
import torch.nn.functional as F
from torch import nn


@torch.compile(dynamic=True)
def body(x, w, b, g, c):
    y = F.linear(x, w, b)
    return F.gelu(F.layer_norm(y, (24,), g, c, 1e-5)).sum(-1)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(32, 24)
        self.norm = nn.LayerNorm(24)

    def forward(self, x):
        return body(x, self.a.weight, self.a.bias, self.norm.weight, self.norm.bias)
