"""Attention in tiles, which does not look at what comes later: eager multiplies that by zeros.

reference: causal
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x) / 4.0, self.key(x), self.value(x)
        size, parts = x.shape[-2], []
        for first in range(0, size, 8):
            last = min(first + 8, size)
            scores = q[..., first:last, :] @ k[..., :last, :].transpose(-1, -2)
            rows = torch.arange(first, last, device=x.device)[:, None]
            later = torch.arange(last, device=x.device) > rows
            share = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
            for i in range(last - first):  # a later NaN is multiplied by nothing
                seen = first + i + 1
                parts.append(share[..., i : i + 1, :seen] @ v[..., :seen, :])
        return torch.cat(parts, dim=-2) if parts else x * 1.0
