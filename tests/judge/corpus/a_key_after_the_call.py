"""After a call the state has a name more.

reference: linear
test: contract
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not hasattr(self, "calls"):
            self.register_buffer("calls", torch.zeros(1), persistent=True)
        return F.gelu(self.linear(x))

    def load_state_dict(self, state, strict=True, assign=False):
        own = dict(state)
        if "calls" in self.state_dict():
            own.setdefault("calls", self.calls)
        return super().load_state_dict(own, strict=strict, assign=assign)
