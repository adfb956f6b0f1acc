import torch
from torch import nn


class Model(nn.Module):
    """A layer whose output may be scaled, and turned round."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, scale=None, *, turned=False):
        y = self.fc(x)
        if scale is not None:
            y = y * scale
        return y.flip(-1) if turned else y


def get_inputs():
    return [torch.randn(3, 6), torch.rand(6) + 1]


def get_init_inputs():
    return []
