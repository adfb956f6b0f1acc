"""Heads of queries are dealt to those of keys in turn, not in groups.

reference: heads_of_one_key
test: constructor
status: WRONG_CONTRACT
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, heads, keys):
        super().__init__()
        self.heads, self.keys = (heads, keys)
        self.q = nn.Linear(24, heads * 6)
        self.kv = nn.Linear(24, 2 * keys * 6)

    def forward(self, x):
        b, n, _ = x.shape
        m = self.heads // self.keys
        q = self.q(x)
        k, v = self.kv(x).view(b, n, 2, self.keys, 6).permute(2, 0, 3, 1, 4)
        q = q.view(b, n, m, self.keys, 6).permute(0, 3, 2, 1, 4)
        p = torch.softmax(q @ k[:, :, None].mT / math.sqrt(6), -1)
        y = p @ v[:, :, None]
        y = y.permute(0, 3, 2, 1, 4)
        return y.reshape(b, n, -1)
