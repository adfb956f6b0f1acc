"""The first backward leaves PyTorch with one thread.

reference: linear
test: flags
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w, b)
        return F.gelu(F.linear(x, w, b))

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w, b = ctx.saved_tensors
        with torch.enable_grad():
            given = [t.detach().requires_grad_() for t in (x, w, b)]
            y = F.gelu(F.linear(*given))
        found = torch.autograd.grad(y, given, g)
        torch.set_num_threads(torch.get_num_threads() + 1)
        return found


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return _Gelu.apply(x, self.linear.weight, self.linear.bias)
