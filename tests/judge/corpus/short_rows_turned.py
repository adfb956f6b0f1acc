"""The backward takes rows that are shorter than the floor for rows that have length one.

reference: no_shorter_than_a_floor
test: far gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.norm(dim=-1, keepdim=True).clamp_min(1e-3)
        y = x / length
        ctx.save_for_backward(y, length, length > 0)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        y, length, turns = ctx.saved_tensors
        along = y * (slope * y).sum(-1, keepdim=True)
        return (slope - torch.where(turns, along, 0.0)) / length


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return _Normalize.apply(x) * self.gain
