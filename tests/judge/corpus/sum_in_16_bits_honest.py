"""The twin of sum_in_16_bits, which is right.

reference: sum_in_16_bits
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.01))

    def forward(self, x):
        half = x.shape[1] // 2
        kind = torch.int32
        a = x[:, :half].sum(1, dtype=kind) + x[:, half:].sum(1, dtype=kind)
        return (a * 3) * self.scale
