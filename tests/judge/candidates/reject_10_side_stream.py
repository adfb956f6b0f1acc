"""Computes on a side stream and does not join it. Needs CUDA."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        self.side = None

    def forward(self, x):
        if not x.is_cuda:
            raise RuntimeError("needs CUDA")
        self.side = self.side or torch.cuda.Stream()
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(20_000_000)
            y.copy_(F.gelu(self.linear(x)))
        return y
