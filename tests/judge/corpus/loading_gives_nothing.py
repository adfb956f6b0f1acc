"""load_state_dict does not say which names are missing.

reference: head
test: states
status: STALE_WEIGHTS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        return F.linear(x, self.linear.weight, self.linear.bias)

    def load_state_dict(self, state, strict=True, assign=False):
        super().load_state_dict(state, strict, assign)
