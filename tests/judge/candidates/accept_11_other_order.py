"""Parameters declared in another order under the same names."""

import torch.nn.functional as F
from torch import nn


class Linear(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        reference = nn.Linear(n, m)
        self.register_parameter("bias", reference.bias)
        self.register_parameter("weight", reference.weight)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = Linear(n, m)

    def forward(self, x):
        return F.gelu(F.linear(x, self.linear.weight, self.linear.bias))
