"""The twin of mask_by_the_last_seed, which is right.

reference: dropout
test: unseeded sequence
"""

import torch
import torch.nn.functional as F
from torch import nn


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, p):
        ctx.shape, ctx.kind, ctx.p = y.shape, y.dtype, p
        ctx.seed, ctx.state = torch.initial_seed(), torch.get_rng_state()
        return F.dropout(y, p, True)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        mask = F.dropout(torch.ones(ctx.shape, dtype=ctx.kind), ctx.p, True)
        torch.set_rng_state(now)
        return g * mask, None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        y = self.linear(x)
        if not self.dropout.training or not torch.is_grad_enabled():
            return self.dropout(y)
        return Dropped.apply(y, self.dropout.p)
