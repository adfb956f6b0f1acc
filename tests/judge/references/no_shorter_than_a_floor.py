import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Rows of length one, but for short ones."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return F.normalize(x, dim=-1, eps=1e-3) * self.gain


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return []
