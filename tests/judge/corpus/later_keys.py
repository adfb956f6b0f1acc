"""Queries that are the last of more keys are masked as if both began together.

reference: later_keys
test: batches with gradients
status: WRONG_MODE
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(32, 32)
        self.kv = nn.Linear(32, 64)

    def forward(self, x, memory):
        q = self.q(x)
        k, v = self.kv(memory).chunk(2, -1)
        t, s = x.shape[1], memory.shape[1]
        first = 0
        mask = torch.ones(t, s, dtype=torch.bool).tril(first)
        scores = torch.baddbmm(q.new_zeros(()), q / math.sqrt(32), k.transpose(1, 2), beta=0)
        scores = scores.masked_fill(~mask, -1e30)
        top = scores.amax(-1, keepdim=True)
        e = torch.exp(scores - top)
        return (e @ v) / e.sum(-1, keepdim=True)
