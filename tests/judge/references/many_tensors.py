import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.ones(8))

    def forward(self, parts):
        w = torch.softmax(self.mix[: len(parts)], 0)
        return sum(w[i] * p for i, p in enumerate(parts))


def get_inputs():
    return [[torch.randn(4, 6) for _ in range(3)]]


def get_init_inputs():
    return []
