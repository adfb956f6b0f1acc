"""All are.

reference: any_number
test: containers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, *xs):
        return self.linear(torch.stack(xs)).amax(0)
