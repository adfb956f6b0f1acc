"""The remainder of a negative number has the other sign.

reference: remainder_of_a_negative
test: far ids
status: WRONG_NUMERICS
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
        at = torch.fmod(at, 16).abs()
        return F.embedding(at.long(), self.table)
