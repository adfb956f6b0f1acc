"""Offsets count in each call.

reference: bag
test: special integers
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(60, 16, mode="mean")
        self.linear = nn.Linear(16, 20)

    def forward(self, index, offsets):
        return self.linear(self.table(index, offsets))
