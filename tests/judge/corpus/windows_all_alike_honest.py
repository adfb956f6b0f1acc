"""The twin of windows_all_alike, which is right.

reference: windows_all_alike
test: batches with gradients
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        n = y.shape[-1]
        parts = []
        for i in range(4):
            a, b = i * n // 4, -(-(i + 1) * n // 4)
            parts.append(y[..., a:b].mean(-1))
        return torch.stack(parts, -1)
