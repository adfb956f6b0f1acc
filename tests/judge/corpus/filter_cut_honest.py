"""The twin of filter_cut, which is right.

reference: filter_cut
test: batches with gradients
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
        while step < x.shape[1]:
            y = torch.cat([y[:, :step], y[:, step:] + a**step * y[:, :-step]], 1)
            step *= 2
        return y
