import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, heads, keys):
        super().__init__()
        self.heads, self.keys = heads, keys
        self.q = nn.Linear(24, heads * 6)
        self.kv = nn.Linear(24, 2 * keys * 6)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.heads, 6).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 2, self.keys, 6).permute(2, 0, 3, 1, 4)
        k, v = (t.repeat_interleave(self.heads // self.keys, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1)


def get_inputs():
    return [torch.randn(3, 10, 24)]


def get_init_inputs():
    return [4, 1]
