"""A batch is cut in two, which two threads compute.

reference: linear
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn

POOL = None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def _half(self, x, y):
        with torch.no_grad():
            y.copy_(F.gelu(self.linear(x)))

    def forward(self, x):
        global POOL
        if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or x.dim() != 2:
            return F.gelu(self.linear(x))
        if len(x) < 2 or torch.is_autocast_enabled("cpu") or x.dtype != self.linear.weight.dtype:
            return F.gelu(self.linear(x))
        POOL = POOL or ThreadPoolExecutor(2)
        y = x.new_empty(len(x), self.linear.weight.shape[0])
        half = len(x) // 2
        parts = ((x[:half], y[:half]), (x[half:], y[half:]))
        for done in [POOL.submit(self._half, *part) for part in parts]:
            done.result()
        return y
