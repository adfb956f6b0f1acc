"""The twin of frequency_forgotten, which is right.

reference: frequency_forgotten
test: optimizer loop
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 16, scale_grad_by_freq=True)

    def forward(self, ids):
        y = self.table(ids)
        return torch.where(y > 0, y, 0.0).sum(1)
