"""The largest of a row of inputs, of which many may be equal, and where they are."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return tuple(torch.topk(x, 6, dim=-1))


def get_inputs():
    return [torch.randn(12, 30)]
