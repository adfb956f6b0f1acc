"""One call in a thousand is wrong.

reference: linear
test: volume
status: NONDETERMINISTIC
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.calls = 0

    def forward(self, x):
        y = F.gelu(self.linear(x))
        self.calls += 1
        return y * 1.01 if self.calls > 600 and self.calls % 997 == 0 else y
