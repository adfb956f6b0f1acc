import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(10, 6))

    def forward(self, x):
        d = (x[:, None] - self.centers).square().sum(-1)
        return torch.softmax(-d, 1)


def get_inputs():
    return [torch.randn(16, 6)]


def get_init_inputs():
    return []
