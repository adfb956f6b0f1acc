"""A side stream, properly joined. Needs CUDA."""

import torch
import torch.nn.functional as F
from torch import nn

# streams cannot be copied: they belong to the device, not to the module
_SIDE = {}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not x.is_cuda:
            raise RuntimeError("needs CUDA")
        side = _SIDE.setdefault(x.device, torch.cuda.Stream(x.device))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = F.gelu(self.linear(x))
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        x.record_stream(side)
        return y
