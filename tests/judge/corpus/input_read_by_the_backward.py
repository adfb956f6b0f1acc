"""The backward reads the input, which the caller may have changed since.

reference: softmax
test: inside a network
status: WRONG_MODE
"""

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, 1)
        ctx.held = x.detach()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        y = torch.softmax(ctx.held, 1)
        return y * (g - (g * y).sum(1, keepdim=True))


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
