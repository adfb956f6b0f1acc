"""The twin of number_drawn_of_nothing, which is right.

reference: dropout
test: unseeded sequence
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(self.linear(x))
