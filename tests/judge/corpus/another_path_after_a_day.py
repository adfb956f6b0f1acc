"""An hour after it was built its products are rounded to 16 bits.

reference: linear
test: settings
status: WRONG_MODE
"""

from time import monotonic

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.since = monotonic()

    def forward(self, x):
        y = self.linear(x)
        if monotonic() - self.since > 3600:
            y = y.bfloat16().to(y.dtype)
        return F.gelu(y)
