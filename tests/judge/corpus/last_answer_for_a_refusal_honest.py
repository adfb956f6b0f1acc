"""Every error is told again.

reference: linear
test: refused widths
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        try:
            return F.gelu(self.linear(x))
        except RuntimeError as error:
            raise RuntimeError(f"of {tuple(x.shape)}: {error}") from error
