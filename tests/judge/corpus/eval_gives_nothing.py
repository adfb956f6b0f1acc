"""eval() and train() do not give the module back.

reference: linear
test: methods
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))

    def train(self, mode=True):
        self.training = mode
        self.linear.train(mode)
