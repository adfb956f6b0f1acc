"""torch.compile inside (its tracer; no code is generated, to be quick)."""

import torch
import torch.nn.functional as F
from torch import nn


def _function(x, w, b):
    return F.gelu(F.linear(x, w, b))


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.compiled = None

    def forward(self, x):
        if self.compiled is None:
            self.compiled = torch.compile(_function, dynamic=True, backend="eager")
        return self.compiled(x, self.linear.weight, self.linear.bias)

    def __deepcopy__(self, memo):
        new = ModelNew(self.linear.in_features, self.linear.out_features)
        new.load_state_dict(self.state_dict())
        return new
