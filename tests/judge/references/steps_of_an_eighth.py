import torch
from torch import nn


class Model(nn.Module):
    """Numbers are rounded to eighths, and gradients pass."""

    def forward(self, x):
        q = torch.round(x * 8).clamp(-128, 127) / 8
        return x + (q - x).detach()


def get_inputs():
    return [torch.randn(5, 9)]


def get_init_inputs():
    return []
