"""The twin of never_at_a_code, which is right.

reference: codes
test: special values
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
            nearest = nearest.clamp(min=0)
        return nearest.sqrt()
