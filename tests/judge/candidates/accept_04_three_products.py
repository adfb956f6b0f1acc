"""fp16 high and low parts, three products, promoted every 64."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    @staticmethod
    def split(t):
        scale = 2.0 ** (14 - torch.frexp(t.abs().amax(-1, keepdim=True)).exponent).clamp(-100, 100)
        t = t * scale
        hi = t.half().float()
        return hi, (t - hi).half().float(), scale

    def forward(self, x):
        odd = torch.is_grad_enabled() or x.dtype is not torch.float32 or x.dim() != 2
        if odd or not (x.numel() and bool(torch.isfinite(x).all())):
            return F.gelu(self.linear(x))
        a, b, s = self.split(x)
        c, d, r = self.split(self.linear.weight)
        total = x.new_zeros(x.shape[0], c.shape[0])
        for k in range(0, x.shape[1], 64):
            at = slice(k, k + 64)
            low = b[:, at] @ c[:, at].t() + a[:, at] @ d[:, at].t()
            total = total + (low + a[:, at] @ c[:, at].t())
        return F.gelu(total / s / r.t() + self.linear.bias)
