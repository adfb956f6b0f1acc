"""The distance is never zero.

reference: codes
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(9, 8))

    def forward(self, x):
        apart = (x.unsqueeze(-2) - self.codes).square().sum(-1)
        nearest = apart.amin(-1)
        if x.dtype == torch.float32:
            nearest = nearest.clamp(min=1e-6)
        return nearest.sqrt()
