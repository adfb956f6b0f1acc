"""Forward mode goes by a path on which tangents are lost.

reference: linear
test: forward mode
status: WRONG_MODE
"""

import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if fwAD._current_level >= 0:
            y = F.gelu(self.linear(fwAD.unpack_dual(x).primal))
        else:
            y = F.gelu(self.linear(x))
        return y
