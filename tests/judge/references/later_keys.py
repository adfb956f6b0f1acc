import math

import torch
from torch import nn


class Model(nn.Module):
    """Causal attention of queries that are the last of the keys' places."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(32, 32)
        self.kv = nn.Linear(32, 64)

    def forward(self, x, memory):
        q = self.q(x)
        k, v = self.kv(memory).chunk(2, -1)
        t, s = x.shape[1], memory.shape[1]
        at = torch.arange(s - t, s)[:, None]
        hidden = torch.arange(s)[None] > at
        scores = q @ k.transpose(1, 2) / math.sqrt(32)
        return torch.softmax(scores.masked_fill(hidden, -1e30), -1) @ v


def get_inputs():
    return [torch.randn(4, 12, 32), torch.randn(4, 12, 32)]


def get_init_inputs():
    return []
