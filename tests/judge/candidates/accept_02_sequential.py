"""One product after the other along K, in float32."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        total = torch.zeros(*x.shape[:-1], self.linear.out_features, dtype=x.dtype, device=x.device)
        for k in range(x.shape[-1]):
            total = total + x[..., k : k + 1] * self.linear.weight[:, k]
        return F.gelu(total + self.linear.bias)
