"""A recursive filter is cut after 48 steps.

reference: filter_cut
test: batches with gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        a = torch.sigmoid(self.rate)
        y, step = (1 - a) * x, 1
        while step < min(x.shape[1], 32):
            y = torch.cat([y[:, :step], y[:, step:] + a**step * y[:, :-step]], 1)
            step *= 2
        return y
