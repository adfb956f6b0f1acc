"""Winograd's convolution of tiles of 2 x 2.

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
        if x.shape[-1] % 2 or x.shape[-2] % 2 or not bool(torch.isfinite(x).all()):
            return self.plain(x)
        b = x.new_tensor([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
        g = x.new_tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
        a = x.new_tensor([[1, 1, 1, 0], [0, 1, -1, -1]])
        tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)
        u = g @ self.conv.weight @ g.t()
        v = b @ tiles @ b.t()
        m = torch.einsum("ocij,nchwij->nohwij", u, v)
        y = a @ m @ a.t()
        n, o, h, w = y.shape[:4]
        y = y.permute(0, 1, 2, 4, 3, 5).reshape(n, o, 2 * h, 2 * w)
        return torch.relu(y + self.conv.bias[:, None, None])
