"""Two inputs of one shape that begin at one address are taken for one.

reference: larger
test: layout
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        if x.data_ptr() == y.data_ptr() and x.shape == y.shape:
            return x.clone()
        return torch.maximum(x, y)
