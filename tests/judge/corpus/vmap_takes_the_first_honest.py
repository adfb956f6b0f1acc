"""Under vmap each sample counts.

reference: linear
test: vmap
"""

import torch
import torch.nn.functional as F
from torch import nn


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return F.gelu(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        below = 0.5 * (1 + torch.erf(x / 2**0.5))
        return g * (below + x * torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5)

    @staticmethod
    def vmap(info, in_dims, x):
        return Gelu.apply(x), in_dims[0]


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
