"""Rows of length one, but those of zeros."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(18, 40)]
