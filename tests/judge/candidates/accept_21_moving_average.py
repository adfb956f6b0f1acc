"""The same, with the average of the input's rows through the weight, not of the product's."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_buffer("average", torch.zeros(m))

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if self.training:
            with torch.no_grad():
                self.average.copy_(self.average * 0.75 + 0.25 * F.linear(x.mean(0), w, b))
        return F.linear(x, w, b - self.average)
