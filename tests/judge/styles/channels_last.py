"""A convolution in the layout of channels last.

reference: image
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 6, 3, padding=1)

    def plain(self, x):
        return torch.relu(self.conv(x))

    def forward(self, x):
        if torch.is_grad_enabled() or x.dim() != 4 or not x.numel() or x.dtype != torch.float32:
            return self.plain(x)
        y = self.conv(x.contiguous(memory_format=torch.channels_last))
        return torch.relu(y).contiguous()
