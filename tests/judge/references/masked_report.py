"""A report of three kinds of results, of a layer with a scale and a mask that may be left out."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, x, scale=1.0, mask=None):
        y = self.fc(x) * scale
        if mask is not None:
            y = y.masked_fill(mask[:, None], 0.0)
        return {"out": y, "aux": (y.mean(-1), None), "rows": torch.arange(len(x), device=x.device)}


def get_inputs():
    return [torch.randn(10, 30)]


def get_init_inputs():
    return [30, 20]
