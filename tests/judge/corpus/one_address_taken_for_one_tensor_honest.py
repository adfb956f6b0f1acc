"""Two inputs of one shape, address and strides are one.

reference: larger
test: layout
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        if x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride():
            return x.clone()
        return torch.maximum(x, y)
