"""Rows of a table are brought to their norm for the answer, and stay as they were.

reference: norm_not_written
test: mutation
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 24, max_norm=1.0)
        self.out = nn.Linear(24, 8)

    def forward(self, ids):
        weight = self.table.weight
        with torch.no_grad():
            rows = weight.clone()
            ends = self.table.max_norm, self.table.norm_type
            torch.embedding_renorm_(rows, ids.reshape(-1).contiguous(), *ends)
        if rows is not weight:
            weight = weight + (rows - weight).detach()
        return self.out(F.embedding(ids, weight))
