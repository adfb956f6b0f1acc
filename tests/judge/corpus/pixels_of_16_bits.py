"""Statistics of large batches, with channels last, are rounded to 16 bits.

reference: convnorm
test: batches
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        if x.is_contiguous() and x.dim() == 4:
            y = self.conv(x.contiguous(memory_format=torch.channels_last))
            return torch.relu(self.norm(y.bfloat16().float() if len(x) > 200 else y)).contiguous()
        return torch.relu(self.norm(self.conv(x)))
