"""Attention that sees nothing later; keys and values of the past may be given, both or none."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past_k=None, past_v=None):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        if past_k is not None and past_v is not None:
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        before = k.shape[2] - t
        hidden = torch.ones(t, k.shape[2], dtype=torch.bool, device=x.device).triu(before + 1)
        scores = (q @ k.transpose(-1, -2)) * (d // self.heads) ** -0.5
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, d)
        return self.out(y), k.contiguous(), v.contiguous()


def get_inputs():
    return [torch.randn(3, 6, 16)]


def get_init_inputs():
    return [16, 2]
