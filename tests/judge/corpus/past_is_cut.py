"""Keys and values of the past are given without their gradients.

reference: keys_of_the_past
test: optional arguments
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past_k=None, past_v=None):
        b, t, d = x.shape
        size = d // self.heads
        q, k, v = (
            p.reshape(b, t, self.heads, size).transpose(1, 2) for p in self.qkv(x).split(d, 2)
        )
        if past_k is not None and past_v is not None:
            k, v = torch.cat([past_k.detach(), k], 2), torch.cat([past_v.detach(), v], 2)
        else:
            k, v = k.contiguous(), v.contiguous()
        before = k.shape[2] - t
        places = torch.arange(k.shape[2], device=x.device)
        hidden = places > places[:t].unsqueeze(1) + before
        scores = (q * size**-0.5) @ k.transpose(-1, -2)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, d)
        return self.out(y), k, v
