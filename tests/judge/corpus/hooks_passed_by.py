"""__call__ goes straight to forward.

reference: linear
test: hooks
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        return F.gelu(self.linear(x))
