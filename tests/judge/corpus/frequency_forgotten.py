"""The gradient of a table is not divided by how often an index comes.

reference: frequency_forgotten
test: optimizer loop
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 16, scale_grad_by_freq=False)

    def forward(self, ids):
        y = self.table(ids)
        return torch.where(y > 0, y, 0.0).sum(1)
