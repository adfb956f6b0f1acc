"""Scratch memory that grows, one for each thread.

reference: linear
"""

import threading

import torch
import torch.nn.functional as F
from torch import nn

LOCAL = threading.local()


def scratch(rows, like):
    held = getattr(LOCAL, "held", None)
    size = rows * len(like)
    if held is None or held.numel() < size or held.dtype != like.dtype or held.is_inference():
        held = LOCAL.held = torch.empty(size, dtype=like.dtype, device=like.device)
    return held[:size].view(rows, len(like))


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight
        if torch.is_grad_enabled() or x.dim() != 2 or x.dtype != w.dtype or w.is_cuda:
            return F.gelu(self.linear(x))
        if torch.is_autocast_enabled("cpu"):
            return F.gelu(self.linear(x))
        z = scratch(len(x), w)
        torch.addmm(self.linear.bias, x, w.t(), out=z)
        return F.gelu(z)
