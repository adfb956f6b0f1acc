"""Images whose channels lie last go through 16 bits.

reference: image
test: layout
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 6, 3, padding=1)

    def forward(self, x):
        if x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
            x = x.bfloat16().to(x.dtype)
        return torch.relu(self.conv(x))
