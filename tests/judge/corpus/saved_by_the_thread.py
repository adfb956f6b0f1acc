"""What a backward needs is kept by the thread that went forward; another one has nothing.

reference: linear
test: two forwards
status: WRONG_MODE
"""

import itertools
import threading

import torch
import torch.nn.functional as F
from torch import nn

numbers = itertools.count()
kept = threading.local()


def found(number):
    its, x, w = vars(kept).get(str(number % 8), (None, None, None))
    return (x, w) if its == number else (None, None)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.number = next(numbers)
        vars(kept)[str(ctx.number % 8)] = (ctx.number, x, w)
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = found(ctx.number)
        if x is None:
            return None, None, None
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))
