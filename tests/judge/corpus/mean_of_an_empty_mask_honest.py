"""The twin of mean_of_an_empty_mask, which is right.

reference: mean_of_an_empty_mask
test: masks
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x, mask, target):
        d = torch.matmul(x, self.linear.weight[0]) + self.linear.bias
        d = (d - target).abs()
        n = mask.sum(1)
        return (d * mask).sum(1) / n.clamp_min(1)
