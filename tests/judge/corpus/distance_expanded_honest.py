"""The twin of distance_expanded, which is right.

reference: distance_expanded
test: one large sample
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(10, 6))

    def forward(self, x):
        c = self.centers
        d = x[:, :, None] - c.T
        d = torch.einsum("nij,nij->nj", d, d)
        e = torch.exp(d.amin(1, keepdim=True) - d)
        return e / e.sum(1, keepdim=True)
