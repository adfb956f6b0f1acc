import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x):
        y = self.linear(x)
        t = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        f = 1.0 / 10000 ** (torch.arange(0, 16, dtype=x.dtype) / 16)
        a, b = y.chunk(2, -1)
        c, s = torch.cos(t * f), torch.sin(t * f)
        return torch.cat([a * c - b * s, a * s + b * c], -1)


def get_inputs():
    return [torch.randn(4, 10, 32)]


def get_init_inputs():
    return []
