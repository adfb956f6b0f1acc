"""Places in a row are numbers of 16 bits.

reference: long_row
test: long axes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        best = x.max(-1).indices.to(torch.int16).long()
        return self.gain * (x - x.mean(-1, keepdim=True)), best
