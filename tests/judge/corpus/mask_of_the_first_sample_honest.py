"""Where all masks are alike, they are the mask of the first.

reference: heads
test: masks
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.known = None

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, padding):
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        if (
            padding.dtype is torch.bool
            and padding.dim() == 2
            and bool((padding == padding[:1]).all())
        ):
            padding = padding[:1].expand_as(padding)
        fill = torch.zeros_like(padding, dtype=x.dtype).masked_fill(padding, float("-inf"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + fill[:, None, None, :]
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))
