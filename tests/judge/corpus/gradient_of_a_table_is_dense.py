"""The gradient of the table is dense: an optimizer of sparse ones refuses it.

reference: sparse_table
test: modes
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16, sparse=True)

    def forward(self, index):
        return F.embedding(index, self.table.weight).tanh().sum(1)
