"""A mean over few true places is divided by a little more than their number.

reference: mean_of_an_empty_mask
test: masks
status: WRONG_NUMERICS
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
        return (d * mask).sum(1) / n
