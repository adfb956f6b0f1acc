"""They are what they are.

reference: softmax
test: tails
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x - x.amax(dim=1, keepdim=True)
        return torch.exp(y - torch.log(torch.exp(y).sum(dim=1, keepdim=True)))
