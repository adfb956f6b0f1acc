"""The twin of first_code_for_far_points, which is right.

reference: nearest
test: one large sample
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        apart = x.unsqueeze(-2) - self.codes
        far = apart[..., 0] * apart[..., 0]
        for i in range(1, apart.shape[-1]):
            far = far + apart[..., i] * apart[..., i]
        least, best = far.min(-1)
        return least, best
