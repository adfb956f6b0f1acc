"""A number meets values of float64 as one of float32.

reference: interval
test: optional arguments
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Linear(6, 6, dtype=torch.float64)

    def forward(self, x, span=1.0):
        step = torch.tensor(span / 4).item()
        for _ in range(4):
            x = torch.add(x, torch.tanh(self.rate(x)), alpha=step)
        return x
