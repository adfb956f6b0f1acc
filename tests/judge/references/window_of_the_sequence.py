import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        at = torch.arange(x.shape[1])
        far = at[:, None] - at
        hidden = (far < 0) | (far >= 32)
        return torch.softmax((q @ k.mT / 4).masked_fill(hidden, -1e30), -1) @ v


def get_inputs():
    return [torch.randn(4, 24, 16)]


def get_init_inputs():
    return []
