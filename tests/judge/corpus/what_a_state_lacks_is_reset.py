"""What a partial state lacks is put back to its start.

reference: kept_or_all
test: states
status: STALE_WEIGHTS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.weight = nn.Parameter(torch.randn(12, 7))
        self.bias = nn.Parameter(torch.zeros(7))

    def load_state_dict(self, state, strict=True, assign=False):
        said = super().load_state_dict(state, strict=strict, assign=assign)
        if "weight" in said.missing_keys:
            nn.init.ones_(self.weight)
        return said

    def forward(self, x, keep=None):
        y = x @ self.weight + self.bias
        y = torch.where(y > 0, y, y * self.slope)
        return y if keep is None else y * keep[:, None]
