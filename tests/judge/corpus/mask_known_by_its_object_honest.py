"""What a mask makes is made in each call.

reference: heads
test: cache
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
        fill = torch.zeros_like(padding, dtype=x.dtype).masked_fill(padding, float("-inf"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + fill[:, None, None, :]
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))
