"""An optional tensor has its effect and its gradient.

reference: optional
test: optional arguments
status: ACCEPTED
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x, mask=None, scale=1.0, square=False):
        y = self.linear(x)
        if mask is not None:
            y = y + mask.mean(-1, keepdim=True)
        y = y * scale
        if square:
            y = y * y
        return y
