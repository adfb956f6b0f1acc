"""They go another way, in float32.

reference: image
test: layout
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 6, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.conv(x.contiguous()))
        if x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
            y = y.contiguous(memory_format=torch.channels_last)
        return y
