"""Softmax without subtracting the maximum."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = x.exp()
        return e / e.sum(dim=1, keepdim=True)
