"""What a state does not name is set to zero.

reference: linear
test: states
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))

    def load_state_dict(self, state_dict, strict=True, assign=False):
        found = super().load_state_dict(state_dict, strict=strict, assign=assign)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name not in state_dict:
                    parameter.zero_()
        return found
