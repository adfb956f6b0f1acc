"""Indices of 32 bits are read as if they had 64.

reference: embedding
test: far ids
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.linear = nn.Linear(32, 40)

    def forward(self, index):
        if index.dtype is torch.int32:
            index = index.repeat_interleave(2, 1)[:, : index.shape[1]]
        return self.linear(self.table(index)).mean(1)
