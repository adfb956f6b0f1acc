"""A launch that always fails, and nobody reads the error. Needs CUDA."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        self.kernel = None

    def forward(self, x):
        import ctypes

        if not x.is_cuda:
            raise RuntimeError("needs CUDA")
        y = F.gelu(self.linear(x))
        out = torch.empty_like(y)
        runtime = ctypes.CDLL("libcudart.so")
        runtime.cudaMemcpyAsync(ctypes.c_void_p(out.data_ptr()), None, 1, 99, None)
        return out
