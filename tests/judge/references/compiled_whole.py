import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(32, 24)
        self.norm = nn.LayerNorm(24)

    def forward(self, x):
        return F.gelu(self.norm(self.a(x))).sum(-1)


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
