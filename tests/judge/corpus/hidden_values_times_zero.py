"""What a mask hides is multiplied by zero: where it is no number, the sum is none.

reference: pooled_under_a_mask
test: hostile values
status: WRONG_NUMERICS
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 12)

    def forward(self, x, keep):
        y = self.linear(x)
        return (y * keep[..., None].to(y.dtype)).sum(1)
