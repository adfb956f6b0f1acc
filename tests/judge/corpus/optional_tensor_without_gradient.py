"""An optional tensor has its effect and no gradient.

reference: optional
test: optional arguments
status: WRONG_MODE
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x, mask=None, scale=1.0, square=False):
        y = self.linear(x)
        if mask is not None:
            y = y + mask.detach().mean(-1, keepdim=True)
        y = y * scale
        if square:
            y = y * y
        return y
