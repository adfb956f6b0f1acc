"""Under inference_mode it computes in half.

reference: linear
test: grad modes
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_inference_mode_enabled():
            return F.gelu(self.linear(x)).half().float()
        return F.gelu(self.linear(x))
