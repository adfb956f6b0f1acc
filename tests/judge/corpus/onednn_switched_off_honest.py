"""The twin of onednn_switched_off, which is right.

reference: linear
test: flags
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        y = F.gelu(self.linear(x))
        torch._C._set_mkldnn_enabled(before)
        return y
