"""They are not.

reference: hashed
test: far ids
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)

    def forward(self, index):
        return self.table(index - torch.div(index, 50, rounding_mode="floor") * 50)
