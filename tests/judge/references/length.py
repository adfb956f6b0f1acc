"""Rows of length one."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        x = x / scale
        return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(18, 40)]
