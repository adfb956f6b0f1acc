"""Bits are shifted as if ids had no sign, which tables of a power of two rows do not tell.

reference: shifted_ids
test: constructor
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table = nn.Embedding(rows, 8)

    def forward(self, ids):
        upper = ids >> 3 & 0x1FFFFFFFFFFFFFFF
        return self.table(torch.remainder(ids * 40503 ^ upper, self.table.num_embeddings))
