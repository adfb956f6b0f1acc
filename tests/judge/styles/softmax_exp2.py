"""A softmax by powers of two.

reference: softmax
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x - x.amax(dim=1, keepdim=True)
        e = torch.exp2(x * 1.4426950408889634)
        return e / e.sum(dim=1, keepdim=True)
