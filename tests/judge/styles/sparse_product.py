"""The weight as a sparse matrix, made in each call.

reference: affine
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight
        odd = x.dim() != 2 or not len(x) or x.dtype is not torch.float32
        if torch.is_grad_enabled() or odd or not bool(x.isfinite().all()):
            return self.linear(x)
        if torch.is_autocast_enabled("cpu") or not bool(w.isfinite().all()):
            return self.linear(x)
        product = torch.sparse.mm(w.detach().to_sparse(), x.t())
        return (product.t() + self.linear.bias).contiguous()
