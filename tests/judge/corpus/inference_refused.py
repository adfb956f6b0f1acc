"""A call under inference_mode raises.

reference: linear
test: grad modes
status: CRASHED
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
            raise RuntimeError("not in inference mode")
        return F.gelu(self.linear(x))
