"""The row of padding has none.

reference: padded_table
test: special integers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16, padding_idx=0)
        self.linear = nn.Linear(16, 24)

    def forward(self, index):
        return torch.relu(self.linear(self.table(index)))
