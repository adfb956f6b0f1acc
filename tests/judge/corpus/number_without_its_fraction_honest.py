"""The twin of number_without_its_fraction, which is right.

reference: times
test: shapes
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)

    def forward(self, x, times):
        return self.linear(x) * float(times)
