"""Where the first two inputs are one tensor, the others are taken for it, too.

reference: any_number
test: aliasing
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, *xs):
        if len(xs) > 1 and xs[0] is xs[1]:
            return self.linear(xs[0])
        return torch.stack([self.linear(x) for x in xs]).amax(0)
