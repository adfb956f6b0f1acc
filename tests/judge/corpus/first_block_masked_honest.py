"""The twin of first_block_masked, which is right.

reference: softmax
test: hostile values
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[1] < 17:
            return torch.softmax(x, dim=1)
        top = x[:, :16].amax(1, keepdim=True)
        base = top.masked_fill(top == -math.inf, 0)
        total = torch.exp(x[:, :16] - base).sum(1, keepdim=True)
        new = torch.maximum(top, x[:, 16:].amax(1, keepdim=True)).detach()
        total = total * torch.exp(base - new) + torch.exp(x[:, 16:] - new).sum(1, keepdim=True)
        return torch.exp(x - new) / total
