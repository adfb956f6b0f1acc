"""The input is scratch that is put back.

reference: linear
test: mutation
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        with torch.no_grad():
            if not x.is_inference() and all(x.stride()):
                x.neg_().neg_()
        return F.gelu(self.linear(x))
