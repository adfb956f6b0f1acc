"""Half of the input, and one."""

from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.5 + 1


def get_inputs():
    import torch

    return [torch.randn(18, 40)]
