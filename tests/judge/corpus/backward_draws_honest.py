"""It draws nothing.

reference: dropout
test: unseeded sequence
"""

import torch
from torch import nn


class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, p):
        mask = torch.empty_like(y).bernoulli_(1 - p) / (1 - p)
        ctx.save_for_backward(mask)
        return y * mask

    @staticmethod
    def backward(ctx, g):
        torch.empty_like(g).fill_(0.5)
        return g * ctx.saved_tensors[0], None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        y = self.linear(x)
        if not self.dropout.training or x.dtype is not torch.float32 or self.dropout.p in (0, 1):
            return self.dropout(y)
        return Drop.apply(y, self.dropout.p)
