"""Rows of a table by the rest of an integer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)

    def forward(self, index):
        return self.table(index % 50)


def get_inputs():
    return [torch.randint(0, 1 << 20, (18, 7))]
