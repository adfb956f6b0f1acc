"""They are followed.

reference: linear
test: weights in other modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.fold = None

    def forward(self, x):
        if not torch.is_inference_mode_enabled():
            return F.gelu(self.linear(x))
        w, b = self.linear.weight, self.linear.bias
        if self.fold is None or not (torch.equal(self.fold[0], w) and torch.equal(self.fold[1], b)):
            self.fold = (w.clone(), b.clone())
        return F.gelu(F.linear(x, *self.fold))
