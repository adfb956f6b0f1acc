"""They are said.

reference: head
test: states
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
        found = super().load_state_dict(state, strict, assign)
        found.missing_keys.sort()
        found.unexpected_keys.sort()
        return found
