"""They are widened.

reference: embedding
test: far ids
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
            index = index.long()
        return self.linear(self.table(index)).mean(1)
