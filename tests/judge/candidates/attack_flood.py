"""Prints without end."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        while True:
            print("ACCEPTED " * 1000)
