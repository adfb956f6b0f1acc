"""A product whose result lies column by column, as einsum and libraries of BLAS leave it.

reference: affine
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if x.dim() != 2:
            return self.linear(x)
        return torch.addmm(b[:, None], w, x.t()).t()
