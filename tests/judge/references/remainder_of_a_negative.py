import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 8))

    def forward(self, ids):
        return self.table[(ids * 7 + 3) % 16]


def get_inputs():
    return [torch.randint(0, 1000, (8, 4))]


def get_init_inputs():
    return []
