"""A switch is heard only beside another argument, which is optional, too.

reference: scaled_or_turned
test: optional arguments
status: WRONG_CONTRACT
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, scale=None, *, turned=False):
        y = self.fc(x)
        if scale is None:
            return y
        y = y * scale
        return y.flip(-1) if turned else y
