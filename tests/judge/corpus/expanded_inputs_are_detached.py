"""An input with a stride of zero gets no gradient.

reference: linear
test: inside a network
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if 0 in x.stride():
            x = x.detach()
        return F.gelu(self.linear(x))
