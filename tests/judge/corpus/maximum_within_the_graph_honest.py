"""The twin of maximum_within_the_graph, which is right.

reference: many_keys
test: modes
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
        k, v = self.kv(memory).chunk(2, -1)
        scores = self.q(x) @ k.transpose(1, 2) / math.sqrt(32)
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (e @ v) / e.sum(-1, keepdim=True)
