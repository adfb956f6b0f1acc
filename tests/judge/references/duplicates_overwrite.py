import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, where):
        y = self.linear(x)
        return torch.zeros_like(y).index_add(0, where % x.shape[0], y)


def get_inputs():
    return [torch.randn(12, 8), torch.randperm(12)]


def get_init_inputs():
    return []
