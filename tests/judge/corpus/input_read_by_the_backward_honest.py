"""It reads the result, which is saved.

reference: softmax
test: inside a network
"""

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, 1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(1, keepdim=True))


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
