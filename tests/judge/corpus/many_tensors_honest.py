"""The twin of many_tensors, which is right.

reference: many_tensors
test: containers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.ones(8))

    def forward(self, parts):
        n = len(parts)
        w = torch.softmax(self.mix[:n], 0)[:n]
        return torch.einsum("n,nbc->bc", w, torch.stack(list(parts)))
