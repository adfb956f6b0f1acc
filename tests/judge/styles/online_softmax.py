"""Attention over blocks of keys, with a running maximum and sum.

reference: attention
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x) / 32**0.5, self.key(x), self.value(x)
        if not x.numel() or not bool(torch.isfinite(x).all()):
            return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        top = q.new_full((*q.shape[:-1], 1), float("-inf"))
        total, found = torch.zeros_like(top), torch.zeros_like(q)
        for keys, values in zip(k.split(8, -2), v.split(8, -2), strict=True):
            scores = q @ keys.transpose(-1, -2)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, old = torch.exp(scores - new), torch.exp(top - new)
            total = total * old + weights.sum(-1, keepdim=True)
            found, top = found * old + weights @ values, new
        return found / total
