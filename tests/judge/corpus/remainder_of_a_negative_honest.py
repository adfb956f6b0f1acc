"""The twin of remainder_of_a_negative, which is right.

reference: remainder_of_a_negative
test: far ids
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 8))

    def forward(self, ids):
        at = ids * 7 + 3
        at = at & 15
        return F.embedding(at.long(), self.table)
