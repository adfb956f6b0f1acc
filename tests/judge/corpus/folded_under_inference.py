"""Under inference_mode the weights are those of the first such call.

reference: linear
test: weights in other modes
status: STALE_WEIGHTS
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
        if self.fold is None or self.fold[0].dtype != x.dtype:
            self.fold = (self.linear.weight.clone(), self.linear.bias.clone())
        return F.gelu(F.linear(x, *self.fold))
