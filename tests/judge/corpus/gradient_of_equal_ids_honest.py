"""The twin of gradient_of_equal_ids, which is right.

reference: embedding
test: modes
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(table, index)
        return F.embedding(index, table)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        table, index = ctx.saved_tensors
        found = torch.zeros_like(table)
        found.index_put_((index.reshape(-1),), g.reshape(-1, g.shape[-1]), accumulate=True)
        return found, None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.linear = nn.Linear(32, 40)

    def forward(self, index):
        return self.linear(_Take.apply(self.table.weight, index)).mean(1)
