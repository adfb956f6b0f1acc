"""All rows are there.

reference: rows_above
test: one tensor at a time
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.score = nn.Linear(n, 1)
        self.out = nn.Linear(n, n)

    def forward(self, x):
        keep = self.score(x)[..., 0] > 0.8
        at = keep.nonzero()
        return self.out(x[at[:, 0], at[:, 1]]), at
