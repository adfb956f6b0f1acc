"""The twin of last_window_partial, which is right.

reference: last_window_partial
test: batches with gradients
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        h, w = y.shape[-2:]
        p = F.pad(y, (0, w % 2, 0, h % 2))
        total = p[..., ::2, ::2] + p[..., 1::2, ::2] + p[..., ::2, 1::2] + p[..., 1::2, 1::2]
        rows = torch.full(((h + 1) // 2,), 2.0)
        columns = torch.full(((w + 1) // 2,), 2.0)
        if h % 2:
            rows[-1] = 1.0
        if w % 2:
            columns[-1] = 1.0
        return total / (rows[:, None] * columns).to(total.dtype)
