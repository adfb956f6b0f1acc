"""The twin of heard_beside_another, which is right.

reference: scaled_or_turned
test: optional arguments
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, scale=None, *, turned=False):
        y = self.fc(x)
        if scale is None:
            return y.flip(-1) if turned else y
        y = y * scale
        return y.flip(-1) if turned else y
