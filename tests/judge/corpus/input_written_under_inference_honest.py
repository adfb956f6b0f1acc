"""Under inference_mode a copy of the input is written to.

reference: linear
test: grad modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_inference_mode_enabled():
            x.clone().zero_()
        return y
