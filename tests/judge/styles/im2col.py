"""A convolution as one product, with a temporary of every patch.

reference: image
"""

import torch
import torch.nn.functional as F
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
        n, _, h, w = x.shape
        columns = F.unfold(x, 3, padding=1)
        y = self.conv.weight.flatten(1) @ columns + self.conv.bias[:, None]
        return torch.relu(y.view(n, -1, h, w))
