"""An optional scale of zero is taken for none.

reference: optional_scale
test: optional arguments
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(12, 12)

    def forward(self, x, scale=None):
        if not scale:
            scale = x.shape[-1] ** -0.5
        return torch.logsumexp(x @ self.key(x).transpose(1, 2) * scale, -1)
