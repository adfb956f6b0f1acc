"""The twin of cosine_of_tiny_rows, which is right.

reference: cosine_of_tiny_rows
test: far magnitudes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(24, 16, bias=False)

    def forward(self, x, y):
        p, q = self.a(x), self.a(y)
        n = [torch.linalg.vector_norm(t, dim=1) for t in (p, q)]
        eps = 1e-3
        return (p / n[0].clamp_min(eps)[:, None] * (q / n[1].clamp_min(eps)[:, None])).sum(1)
