"""Each place of a sequence has a factor of its own."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        place = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
        return self.linear(x * torch.cos(place)[:, None])


def get_inputs():
    return [torch.randn(6, 10, 8)]
