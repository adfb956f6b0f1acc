"""Of any number of inputs three are read.

reference: any_number
test: containers
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, *xs):
        return torch.stack([self.linear(x) for x in xs[:3]]).amax(0)
