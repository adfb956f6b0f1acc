"""Sums whose roundings are added up beside.

reference: rowsum
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        total, lost = torch.zeros_like(y[:, 0]), torch.zeros_like(y[:, 0])
        for part in y.unbind(1):
            more = total + part
            shown = more - total
            lost = lost + ((total - (more - shown)) + (part - shown)).detach()
            total = more
        return (total + torch.where(lost.isfinite(), lost, 0.0)).unsqueeze(1)
