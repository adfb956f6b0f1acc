"""A number that is whole in the example is cut to a whole one.

reference: times
test: shapes
status: WRONG_NUMERICS
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)

    def forward(self, x, times):
        return self.linear(x) * int(times)
