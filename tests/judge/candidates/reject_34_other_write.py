"""Writes other numbers into its input than the reference does."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        y = self.linear((x * 0.5).clamp(min=-1))
        x.zero_()
        return y
