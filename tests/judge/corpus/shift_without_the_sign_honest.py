"""The twin of shift_without_the_sign, which is right.

reference: shifted_ids
test: constructor
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table = nn.Embedding(rows, 8)

    def forward(self, ids):
        upper = torch.div(ids, 8, rounding_mode="floor")
        return self.table(torch.remainder(ids * 40503 ^ upper, self.table.num_embeddings))
