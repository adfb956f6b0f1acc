"""The twin of gradient_of_the_last_elements: blocks are whole, or all are.

reference: whole_blocks
test: batches with gradients
"""

import torch
from torch import nn


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        slope = (s * (1 + x * (1 - s))).reshape(-1)
        return g * slope.view(x.shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return Gate.apply(x)
