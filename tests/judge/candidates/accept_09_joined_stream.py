"""A side stream, properly joined. Needs CUDA."""

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
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = F.gelu(self.linear(x))
        torch.cuda.current_stream().wait_stream(self.side)
        y.record_stream(torch.cuda.current_stream())
        x.record_stream(self.side)
        return y
