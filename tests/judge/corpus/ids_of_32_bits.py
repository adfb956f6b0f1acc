"""Integers are cut to 32 bits.

reference: hashed
test: far ids
status: WRONG_NUMERICS
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)

    def forward(self, index):
        return self.table(index.int().long() % 50)
