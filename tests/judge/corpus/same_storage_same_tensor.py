"""Two inputs of one storage are taken for one.

reference: gated
test: layout
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
            y = x
        return self.linear(x) * torch.sigmoid(self.gate(y))
