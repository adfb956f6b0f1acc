"""Rows shared out to a thread pool, and waited for."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn

_POOL = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        alone = torch.is_inference_mode_enabled() or x.dim() != 2  # threads have modes of their own
        if alone or torch.is_grad_enabled() or x.shape[0] < 2:
            return F.gelu(self.linear(x))
        y = x.new_empty(x.shape[0], self.linear.out_features)

        def part(rows):
            with torch.no_grad():
                y[rows] = F.gelu(self.linear(x[rows]))

        middle = x.shape[0] // 2
        list(_POOL.map(part, (slice(0, middle), slice(middle, None))))
        return y
