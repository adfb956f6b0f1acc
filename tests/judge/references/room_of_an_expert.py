import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.randn(4, 16, 16) * 0.2)

    def forward(self, x):
        p = torch.softmax(self.gate(x), -1)
        best, which = p.max(-1)
        return torch.einsum("nd,nde->ne", x, self.up[which]) * best[:, None]


def get_inputs():
    return [torch.randn(24, 16)]


def get_init_inputs():
    return []
