"""The maximum is taken off within the graph, and its share of the gradient is summed in 16 bits.

reference: many_keys
test: modes
status: WRONG_MODE
"""

import math

import torch
from torch import nn


class _Less(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        top, at = scores.max(-1, keepdim=True)
        ctx.save_for_backward(at)
        return scores - top

    @staticmethod
    def backward(ctx, slope):
        (at,) = ctx.saved_tensors
        return slope.scatter_add(-1, at, -slope.bfloat16().sum(-1, keepdim=True).float())


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(32, 32)
        self.kv = nn.Linear(32, 64)

    def forward(self, x, memory):
        k, v = self.kv(memory).chunk(2, -1)
        scores = self.q(x) @ k.transpose(1, 2) / math.sqrt(32)
        e = torch.exp(_Less.apply(scores))
        return (e @ v) / e.sum(-1, keepdim=True)
