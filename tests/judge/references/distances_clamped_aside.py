import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk = nn.Linear(16, 32)
        self.near = nn.Parameter(torch.randn(49) * 0.5)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        at = torch.arange(x.shape[1])
        far = (at[None] - at[:, None]).clamp(-24, 24) + 24
        return torch.softmax(q @ k.transpose(1, 2) / 4 + self.near[far], -1) @ x


def get_inputs():
    return [torch.randn(4, 20, 16)]


def get_init_inputs():
    return []
