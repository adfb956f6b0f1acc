"""The twin of product_by_logarithms, which is right.

reference: product_by_logarithms
test: special weights
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x):
        y = torch.relu(x) * self.scale
        found = [y[:, 0]]
        for i in range(1, y.shape[1]):
            found.append(found[-1] * y[:, i])
        return torch.stack(found, 1)
