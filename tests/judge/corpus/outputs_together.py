"""An output's gradient counts only where the other has one.

reference: pair
test: outputs alone
status: WRONG_MODE
"""

import torch
from torch import nn


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.set_materialize_grads(False)
        return y.clone(), y.clone()

    @staticmethod
    def backward(ctx, a, b):
        if a is None or b is None:
            return torch.zeros_like(b if a is None else a)
        return a + b


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        return *Both.apply(self.linear(x)), torch.ones(len(x), len(x)).tril()
