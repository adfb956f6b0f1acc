"""Optional arguments have the reference's names.

reference: optional
test: keywords
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
        return y * y if square else y
